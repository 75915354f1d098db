// Package caseapproval is the contract between two services: the message that approvals publishes and caseview consumes.
package caseapproval

import (
	"time"

	"github.com/postrider/postrider"
)

// Stream is the JetStream stream between the services.
const Stream = "CASES"

// StreamAge is how long the stream keeps messages. A consumer keeps the IDs of consumed messages for 7 days, including a
// replay window of one day, so it recognizes every message that the stream still has.
const StreamAge = 5 * 24 * time.Hour

// Approved says that someone has approved a case. The version of the case and its tenant are in the message's envelope:
// AggregateVersion and Tenant.
type Approved struct {
	TenantID   string    `json:"tenant_id"`
	CaseID     string    `json:"case_id"`
	ApprovedBy string    `json:"approved_by"`
	ApprovedAt time.Time `json:"approved_at"`
}

// CaseApproved is the message. Messages of one case are delivered in order; cases do not wait for each other.
var CaseApproved = postrider.Define[Approved]("case.approved").
	WithTopic("cases").
	WithKey(func(a Approved) string { return a.TenantID + "/case/" + a.CaseID })

// Case is a case as both services return it.
type Case struct {
	TenantID   string `json:"tenant_id"`
	CaseID     string `json:"case_id"`
	Version    int64  `json:"version"`
	ApprovedBy string `json:"approved_by"`
	// Approvals counts the messages applied to the read model: it equals Version if each was processed once.
	Approvals int64 `json:"approvals"`
}
