package attempt

import "github.com/postrider/postrider"

// LogFields are the fields by which log lines about a failure name a message. The key is given because a handler may have changed that of
// the message. Versions, correlation and causation are left out if the message has none.
func LogFields(m *postrider.Message, key string) []any {
	out := []any{"message", m.ID, "type", m.Type, "key", key, "tenant", m.Tenant}
	if m.SchemaVersion != 0 {
		out = append(out, "schema_version", m.SchemaVersion)
	}
	if m.AggregateVersion != 0 {
		out = append(out, "aggregate_version", m.AggregateVersion)
	}
	if m.CorrelationID != "" {
		out = append(out, "correlation", m.CorrelationID)
	}
	if m.CausationID != "" {
		out = append(out, "causation", m.CausationID)
	}
	return out
}
