package inspect

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// Message explains a message by its ID. It is looked up in the dead letters and parked messages, by an index, and in the log:
// an ID that Postrider generated holds its time, so that it is found at once; with another ID the log is read from its oldest
// message. Consumers read no log: of a consumer in the same database, Message says what it has parked or dead-lettered, and
// not what it has processed. Errors: ErrNotFound and those of the store.
func Message(ctx context.Context, store Store, id string) (Explanation, error) {
	l, err := search(ctx, store, id)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Now: l.status.Now, Message: l.describe(), Places: []Place{}}
	l.whole(&e)
	for _, r := range l.relays() {
		p, err := l.place(ctx, r)
		if err != nil {
			return Explanation{}, err
		}
		e.Places = append(e.Places, p)
	}
	return e, nil
}

// located is a message and where it was found.
type located struct {
	store  Store
	status store.Status
	// message has its sequence in the log, 0 if that is unknown.
	message *postrider.Message
	inLog   bool
	parked  map[string]store.ParkedInfo // by relay or consumer
	dead    []store.DeadLetter          // oldest first
	// attempts are the recorded ones of all relays.
	attempts []postrider.DeliveryAttempt
}

// search looks for a message. A message moves from the log to the parked messages and on to the dead letters: in this order
// it is searched for, so that it is not missed between them.
func search(ctx context.Context, s Store, id string) (l *located, err error) {
	l = &located{store: s, parked: make(map[string]store.ParkedInfo)}
	if l.status, err = s.Status(ctx); err != nil {
		return nil, err
	}
	if l.message, err = findInLog(ctx, s, id, math.MaxInt); err != nil {
		return nil, err
	}
	l.inLog = l.message != nil
	for _, r := range l.status.Relays {
		if err := l.findParked(ctx, r.Name, id); err != nil {
			return nil, err
		}
	}
	for d, err := range deadletter.New(s).ListDead(ctx, store.DeadFilter{MessageID: id, State: store.DeadAny}, 0, maxDead) {
		if err != nil {
			return nil, err
		}
		l.dead = append(l.dead, d)
	}
	if !l.inLog && !l.reconstruct() {
		return nil, fmt.Errorf("%w: %q is not in the log, the parked messages or the dead letters: it was rolled back or never published "+
			"here, or it was delivered and is past its retention", ErrNotFound, id)
	}
	l.attempts, err = s.Attempts(ctx, id)
	return l, err
}

// maxDead is how many dead letters of a message are read.
const maxDead = 100

// findParked looks up a message among those that a relay has parked. If an ID was used several times, the newest counts.
func (l *located) findParked(ctx context.Context, name, id string) error {
	found, err := held.New(l.store).FindParked(ctx, name, id)
	if len(found) > 0 {
		l.parked[name] = found[len(found)-1]
	}
	return err
}

// reconstruct takes the message from a copy of it, since it is not in the log. It prefers a copy that a relay made, because
// that has the sequence of the log.
func (l *located) reconstruct() bool {
	var other *postrider.Message
	take := func(m *postrider.Message, consumer bool) bool {
		if !consumer && m.Sequence > 0 {
			l.message = m
			return true
		}
		other = cmp.Or(other, m)
		return false
	}
	for _, d := range l.dead {
		if take(d.Message, d.Side == store.KindConsumer) {
			return true
		}
	}
	for _, r := range l.status.Relays {
		if p, ok := l.parked[r.Name]; ok && take(p.Message, r.Kind == store.KindConsumer) {
			return true
		}
	}
	if other == nil {
		return false
	}
	m := *other
	m.Sequence = 0
	l.message = &m
	return true
}

// describe describes the message.
func (l *located) describe() *MessageInfo {
	m := l.message
	info := &MessageInfo{
		ID: m.ID, Type: m.Type, Topic: m.Topic, Key: m.Key, Partition: l.partition(), Sequence: m.Sequence,
		Origin: OriginPublished, InLog: l.inLog, StoredAt: m.CreatedAt,
	}
	if m.Sequence == 0 {
		l.describeCopy(info)
	}
	if !info.StoredAt.IsZero() {
		info.AgeSeconds = l.status.Now.Sub(info.StoredAt).Seconds()
	}
	return info
}

// describeCopy says where a message comes from that was not published here.
func (l *located) describeCopy(info *MessageInfo) {
	info.Origin = OriginReceived
	if len(l.dead) > 0 {
		if d := l.dead[0]; d.Side == store.KindRelay {
			info.Origin, info.ImportedAs = OriginImported, d.Number
		} else {
			info.Consumer = d.Relay
		}
		return
	}
	for _, r := range l.status.Relays {
		if _, ok := l.parked[r.Name]; ok {
			info.Consumer = r.Name
			return
		}
	}
}

func (l *located) partition() int {
	return postrider.PartitionOf(l.message.Key, l.message.ID, l.status.Partitions)
}

// whole explains what concerns the message as a whole.
func (l *located) whole(e *Explanation) {
	if !l.status.HasRelay() {
		if l.inLog {
			e.Next = &Next{Code: NextProcess, Text: "no relay has run on this outbox yet"}
			e.Actions = []Action{{Kind: ActionStart}}
		}
		return
	}
	if l.inLog && len(l.dead) == 0 && len(l.parked) == 0 && l.status.NobodyTakes(l.message.Topic) {
		e.Unrouted = true
		e.Next = &Next{Code: NextDrop, Text: "every relay skips it, and it is dropped from the log with its retention"}
		e.Actions = []Action{{Kind: ActionRoute, Topic: l.message.Topic}}
	}
}

// relays are the relays and consumers of the outbox, and those known only from dead letters.
func (l *located) relays() []store.RelayStatus {
	out := slices.Clone(l.status.Relays)
	for _, d := range l.dead {
		if !slices.ContainsFunc(out, func(r store.RelayStatus) bool { return r.Name == d.Relay }) {
			out = append(out, store.RelayStatus{Name: d.Relay, Kind: d.Side})
		}
	}
	return out
}

// partitionOf returns the status of a relay's partition, nil if the relay has not begun with it.
func partitionOf(r store.RelayStatus, partition int) *store.PartitionStatus {
	for i := range r.Partitions {
		if r.Partitions[i].Partition == partition {
			return &r.Partitions[i]
		}
	}
	return nil
}

// recorded returns the recorded attempts of a relay.
func (l *located) recorded(name string) (out []Attempt) {
	for _, a := range l.attempts {
		if a.Relay != name {
			continue
		}
		r := Attempt{
			Attempt: a.Attempt, At: a.At, TookSeconds: a.Took.Seconds(), Outcome: a.Outcome, Status: a.Status, Error: a.Error,
			RequestSHA256: hex.EncodeToString(a.RequestSHA256),
		}
		if utf8.Valid(a.Answer) {
			r.Answer = string(a.Answer)
		} else {
			r.AnswerBytes = a.Answer
		}
		out = append(out, r)
	}
	return out
}
