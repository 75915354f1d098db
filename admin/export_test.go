package admin

import "github.com/postrider/postrider/inspect"

const (
	// MaxDiscard is maxDiscard.
	MaxDiscard = maxDiscard
	// RevocationsPage is revocationsPage.
	RevocationsPage = revocationsPage
)

// Redacted is what a rule shows of a payload.
func Redacted(r Rule, payload []byte) []Segment { return r.payload(payload) }

// Digest is that of a review.
func Digest(r Review) string {
	digest, _ := r.digest()
	return digest
}

// Rewritten is the record of a review after a change; its secret stays, and its digest unless again.
func Rewritten(body []byte, change func(*Review), again bool) ([]byte, error) {
	r, err := readReview(body)
	if change(&r); again && err == nil {
		r.Digest, err = r.digest()
	}
	if err != nil {
		return nil, err
	}
	return r.record()
}

// ForEditing is a payload with markers.
func ForEditing(r Rule, payload []byte) (string, error) { return r.forEditing(payload) }

// AfterEdit is the payload of an edited text.
func AfterEdit(r Rule, original []byte, text string) ([]byte, error) { return r.edited(original, text) }

// HasRule reports whether a rule applies to a type.
func HasRule(s *Service, kind string) bool { return s.ruleFor(kind) != nil }

// Explained is an explanation of a message of a type, as a principal gets it.
func Explained(s *Service, p Principal, kind string, e inspect.Explanation) inspect.Explanation {
	return s.explained(p, kind, "", e)
}
