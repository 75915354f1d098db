package saga

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/memory"
)

// ordered is the data of the benchmark, 600 bytes of JSON.
type ordered struct {
	ID      string `json:"id"`
	Note    string `json:"note"`
	Stock   string `json:"stock,omitzero"`
	Payment string `json:"payment,omitzero"`
}

// BenchmarkTransition makes transitions for replies, 100 in a transaction. An operation is a transition.
func BenchmarkTransition(b *testing.B) {
	const size = 100
	s := memory.New(memory.Config{})
	var replies []*postrider.Message
	box, err := outbox.New(s, outbox.Config{Source: "shop", Hooks: []outbox.Hooks{{BeforePublish: func(_ context.Context, m *postrider.Message) error {
		if m.Type == "stock.reserve" {
			reply := replyMessage(m, "done", []byte(`{"id":"reserved"}`))
			reply.ID = postrider.NewID()
			replies = append(replies, reply)
		}
		return nil
	}}}})
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	must(err)
	e, err := New[*memory.Tx](s, box, Config{Name: "shop", Logger: quiet})
	must(err)
	type part struct {
		ID string `json:"id"`
	}
	command := func(o ordered) part { return part{o.ID} }
	orders, err := Register(e, Definition[ordered]{Name: "orders", Version: 1, Steps: []Step[ordered]{
		Request[ordered, part, part]{Name: "reserve", Step: DefineStep[part, part]("stock.reserve"), Command: command, Timeout: time.Hour,
			Done: func(o *ordered, r part) { o.Stock = r.ID }},
		Request[ordered, part, part]{Name: "charge", Step: DefineStep[part, part]("card.charge"), Command: command, Timeout: time.Hour,
			Done: func(o *ordered, r part) { o.Payment = r.ID }},
	}})
	must(err)
	_, err = box.InTx(b.Context(), func(ctx context.Context, tx *memory.Tx) error {
		for i := range size {
			if _, err := orders.Start(ctx, tx, ordered{ID: strconv.Itoa(i), Note: strings.Repeat("a", 540)}, ID(strconv.Itoa(i))); err != nil {
				return err
			}
		}
		return nil
	})
	must(err)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += size {
		tx, err := s.Begin(b.Context())
		must(err)
		batch, err := e.begin(b.Context(), tx, replies)
		must(err)
		for _, m := range replies[:min(size, b.N-done)] {
			must(batch.Handle(b.Context(), m))
		}
		must(batch.End(b.Context()))
		must(s.Rollback(b.Context(), tx))
	}
}
