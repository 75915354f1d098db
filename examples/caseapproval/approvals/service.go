package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"time"

	"github.com/postrider/postrider/examples/caseapproval"
	"github.com/postrider/postrider/outbox"
)

type service struct {
	db     *sql.DB
	outbox *outbox.Outbox[*sql.Tx]
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tenants/{tenant}/cases/{id}", s.handleOpen)
	mux.HandleFunc("POST /tenants/{tenant}/cases/{id}/approvals", s.handleApprove)
	mux.HandleFunc("GET /tenants/{tenant}/cases/{id}", s.handleGet)
	return mux
}

// approve approves a case once more and publishes the approval in one transaction: both happen or neither.
func (s *service) approve(ctx context.Context, tenant, id, by string) (version int64, err error) {
	_, err = s.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		const update = `UPDATE cases SET approved_by = ?, version = version + 1 WHERE tenant_id = ? AND case_id = ? RETURNING version`
		if err := tx.QueryRowContext(ctx, update, by, tenant, id).Scan(&version); err != nil {
			return err
		}
		m, err := caseapproval.CaseApproved.New(caseapproval.Approved{
			TenantID: tenant, CaseID: id, ApprovedBy: by, ApprovedAt: time.Now().UTC(),
		})
		if err != nil {
			return err
		}
		m.Tenant, m.AggregateVersion = tenant, version
		_, err = s.outbox.Publish(ctx, tx, m)
		return err
	})
	return version, err
}

func (s *service) handleApprove(w http.ResponseWriter, r *http.Request) {
	version, err := s.approve(r.Context(), r.PathValue("tenant"), r.PathValue("id"), r.FormValue("by"))
	answer(w, caseapproval.Case{
		TenantID: r.PathValue("tenant"), CaseID: r.PathValue("id"), Version: version, ApprovedBy: r.FormValue("by"),
	}, err)
}

func (s *service) handleOpen(w http.ResponseWriter, r *http.Request) {
	const insert = `INSERT INTO cases (tenant_id, case_id, opened_by) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	_, err := s.db.ExecContext(r.Context(), insert, r.PathValue("tenant"), r.PathValue("id"), r.FormValue("by"))
	answer(w, caseapproval.Case{TenantID: r.PathValue("tenant"), CaseID: r.PathValue("id")}, err)
}

func (s *service) handleGet(w http.ResponseWriter, r *http.Request) {
	c := caseapproval.Case{TenantID: r.PathValue("tenant"), CaseID: r.PathValue("id")}
	const query = `SELECT version, approved_by FROM cases WHERE tenant_id = ? AND case_id = ?`
	err := s.db.QueryRowContext(r.Context(), query, c.TenantID, c.CaseID).Scan(&c.Version, &c.ApprovedBy)
	answer(w, c, err)
}

func answer(w http.ResponseWriter, c caseapproval.Case, err error) {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "there is no such case", http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(c); err != nil {
			log.Printf("answer: %v", err)
		}
	}
}
