package admin

// Redacted is what a rule shows of a payload.
func Redacted(r Rule, payload []byte) []Segment { return r.payload(payload) }
