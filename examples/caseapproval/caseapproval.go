// Package caseapproval is what two services agree on: the message that approvals publishes and caseview consumes.
package caseapproval

import (
	"time"

	"github.com/postrider/postrider"
)

// Stream is the JetStream stream between the services.
const Stream = "CASES"

// StreamAge is how long the stream keeps messages. A consumer remembers the IDs of those that it has consumed for 7 days, and
// may replay one day: what the stream still has is known.
const StreamAge = 5 * 24 * time.Hour

// Approved says that somebody has approved a case. Which version of the case that makes, and its tenant, stand in the
// envelope of the message: AggregateVersion and Tenant.
type Approved struct {
	TenantID   string    `json:"tenant_id"`
	CaseID     string    `json:"case_id"`
	ApprovedBy string    `json:"approved_by"`
	ApprovedAt time.Time `json:"approved_at"`
}

// CaseApproved is the message. Those of one case are delivered in order; cases do not wait for each other.
var CaseApproved = postrider.Define[Approved]("case.approved").
	WithTopic("cases").
	WithKey(func(a Approved) string { return a.TenantID + "/case/" + a.CaseID })

// Case is a case as both services show it.
type Case struct {
	TenantID   string `json:"tenant_id"`
	CaseID     string `json:"case_id"`
	Version    int64  `json:"version"`
	ApprovedBy string `json:"approved_by"`
	// Approvals counts in the read model what was applied: the same as Version if each message had its effect once.
	Approvals int64 `json:"approvals"`
}
