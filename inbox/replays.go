package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Replays selects what a consumer does with messages that an operator replayed (postrider.Message.Replay).
type Replays int

// The choices for replayed messages.
const (
	// HandleNamedReplays handles a message again if the replay names this consumer. Any other replayed message is handled if the
	// consumer has not consumed it before, and otherwise a duplicate.
	HandleNamedReplays Replays = iota
	// HandleReplays handles messages of replays that name no consumer again, too.
	HandleReplays
)

// handlesAgain reports whether a consumer must handle a message although it may have consumed it.
func handlesAgain(m *postrider.Message, consumer string, replays Replays) bool {
	id, named := m.Replay()
	return id != "" && (named == consumer || named == "" && replays == HandleReplays)
}

func (c *Consumer[Tx]) handlesAgain(m *postrider.Message) bool {
	return handlesAgain(m, c.cfg.Name, c.cfg.Replays)
}

// claimsOf returns what is to be claimed for messages: first one claim for each, by which it is new or not. A message to be handled
// again has a claim for the replay, which is redelivered like others; its own ID is claimed too, in case it was not consumed before.
func claimsOf(msgs []*postrider.Message, again func(m *postrider.Message) bool) []store.ClaimRequest {
	claims := make([]store.ClaimRequest, len(msgs), len(msgs)+1)
	for i, m := range msgs {
		claims[i] = store.ClaimRequest{ID: m.ID, Key: m.Key}
		if again(m) {
			claims[i].ID = replayClaim(m)
			claims = append(claims, store.ClaimRequest{ID: m.ID, Key: m.Key})
		}
	}
	return claims
}

// replayClaim is the claim of a message in a replay.
func replayClaim(m *postrider.Message) string {
	id, _ := m.Replay()
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", id, m.ID))
	return "replay-" + hex.EncodeToString(sum[:16])
}
