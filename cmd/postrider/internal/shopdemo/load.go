package shopdemo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/saga"
)

// Loads names the loads, in requests per second; a number is a load too.
var Loads = map[string]float64{"none": 0, "booth": 3, "ambient": 30}

// RateOf is the number of requests per second of a load.
func RateOf(load string) (float64, error) {
	if rate, found := Loads[load]; found {
		return rate, nil
	}
	rate, err := strconv.ParseFloat(load, 64)
	if err != nil || rate < 0 || rate > 1000 {
		return 0, fmt.Errorf("%q is no load; write none, booth, ambient, or a number of requests per second up to 1000", load)
	}
	return rate, nil
}

// callers is how many requests are open at most. A caller waits for the end of its order, so a slow machine gets fewer orders, not more
// and more that wait.
const callers = 64

// latencies is how many of the last durations are kept.
const latencies = 2000

// load sends requests to the shop: orders, orders that must be declined, reads, and new customers.
type load struct {
	*world
	rate   float64
	random *rand.Rand
	// retry: a request that is not answered is sent again with the same Idempotency-Key, since services are killed.
	retry bool

	mu      sync.Mutex
	counts  loadCounts
	took    []time.Duration // a ring
	failure error           // the last one
	open    []placedOrder   // not final when the load ended
	broken  []string        // orders that ended in another way than they must
}

// placedOrder is an order, and the status in which it must end.
type placedOrder struct {
	kind kind
	id   string
	want shop.Status
}

// loadCounts is what a load has done.
type loadCounts struct {
	// Orders counts those that can succeed, Declined those that cannot; Late those of both that took longer than callers like to wait.
	Orders, Declined, Late int
	// TimedOut and SoldOut count orders that can succeed and were cancelled: because the machine was slower than the time limits of
	// their sagas, or because their goods had not arrived yet. They break no promise.
	TimedOut, SoldOut int
	// Reads and Customers count the other requests, Failed those of any kind that got no answer or another one than expected.
	Reads, Customers, Failed int
}

func newLoad(w *world, rate float64) *load {
	return &load{world: w, rate: rate, random: rand.New(rand.NewPCG(w.cfg.Seed, 1))}
}

// run sends requests until ctx ends, and returns when all are answered.
func (l *load) run(ctx context.Context) {
	if l.rate == 0 {
		<-ctx.Done()
		return
	}
	var open sync.WaitGroup
	defer open.Wait()
	slots := make(chan struct{}, callers)
	tick := time.NewTicker(time.Duration(float64(time.Second) / l.rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		request := l.draw()
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		open.Go(func() {
			defer func() { <-slots }()
			if err := request(ctx); err != nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.counts.Failed++
				l.failure = err
			}
		})
	}
}

// draw chooses the next request: half of them are orders, a tenth must be declined, a third are reads. It is given the context of the
// load, whose end it outlives.
func (l *load) draw() func(context.Context) error {
	customer := fmt.Sprintf("customer-%02d", 1+l.random.IntN(50))
	k := []kind{orchestrated, choreographed}[l.random.IntN(2)]
	switch n := l.random.IntN(100); {
	case n < 50:
		o := orderRequest{Customer: customer}
		for range 1 + l.random.IntN(2) {
			o.Lines = append(o.Lines, shop.Line{SKU: fmt.Sprintf("P-%02d", 1+l.random.IntN(19)), Quantity: 1 + l.random.IntN(3)})
		}
		return func(ctx context.Context) error { return l.placeOrder(ctx, k, o, shop.Shipped, &l.counts.Orders) }
	case n < 60:
		o := orderRequest{Customer: customer, Lines: []shop.Line{{SKU: workstation, Quantity: 2}}}
		return func(ctx context.Context) error { return l.placeOrder(ctx, k, o, shop.Cancelled, &l.counts.Declined) }
	case n < 80:
		return func(ctx context.Context) error { return l.read(ctx, "payments", "/accounts/"+customer) }
	case n < 95:
		return func(ctx context.Context) error { return l.read(ctx, "inventory", "/products") }
	default:
		a := shop.Account{Customer: "customer-" + strconv.FormatUint(l.random.Uint64(), 36), Card: "4000-0000"}
		return func(loading context.Context) error {
			r, err := l.request(context.WithoutCancel(loading), http.MethodPost, "payments", "/accounts", a)
			return l.count(&l.counts.Customers, r, err, http.StatusCreated)
		}
	}
}

func (l *load) read(loading context.Context, service, path string) error {
	r, err := l.request(context.WithoutCancel(loading), http.MethodGet, service, path, nil)
	return l.count(&l.counts.Reads, r, err, http.StatusOK)
}

// orderWait is how long callers like to wait for the end of an order.
const orderWait = 5 * time.Second

// placeOrder places an order, waits for its end or that of the load, and notes whether the end is the one that is expected.
func (l *load) placeOrder(loading context.Context, k kind, o orderRequest, want shop.Status, counter *int) error {
	ctx, id, begun := context.WithoutCancel(loading), newOrder(), time.Now()
	r, err := l.place(ctx, k, id, o, 5)
	for l.retry && loading.Err() == nil && (err != nil || r.status == http.StatusServiceUnavailable) {
		time.Sleep(500 * time.Millisecond)
		r, err = l.place(ctx, k, id, o, 5)
	}
	if err != nil {
		return err
	}
	var placed shop.OrderView
	if err := json.Unmarshal(r.body, &placed); err != nil {
		return fmt.Errorf("POST %s: %d: %s", k.path, r.status, r.text())
	}
	for !placed.Status.Final() && loading.Err() == nil {
		time.Sleep(min(max(20*time.Millisecond, time.Since(begun)/5), time.Second)) // who asks too often keeps a slow shop slow
		if found, err := l.order(ctx, id); err == nil {
			placed = found
		}
	}
	took := time.Since(begun)
	l.mu.Lock()
	defer l.mu.Unlock()
	*counter++
	if l.took = append(l.took, took); len(l.took) > latencies {
		l.took = slices.Delete(l.took, 0, latencies/2)
	}
	if took > orderWait {
		l.counts.Late++
	}
	if p := (placedOrder{k, id, want}); placed.Status.Final() {
		l.judge(p, placed)
	} else {
		l.open = append(l.open, p)
	}
	return nil
}

// judge notes how an order has ended.
func (l *load) judge(p placedOrder, o shop.OrderView) {
	switch {
	case o.Status == p.want:
	case p.want == shop.Shipped && strings.HasPrefix(o.Reason, string(saga.CauseTimedOut)):
		l.counts.TimedOut++
	case p.want == shop.Shipped && strings.HasPrefix(o.Reason, string(saga.CauseRefused)+": "+p.kind.reserve):
		l.counts.SoldOut++
	default:
		l.broken = append(l.broken, fmt.Sprintf("order %s is %s instead of %s: %s", o.ID, o.Status, p.want, o.Reason))
	}
}

// judgeOpen judges the orders that were open when the load ended, and returns all that ended in another way than they must.
func (l *load) judgeOpen(ctx context.Context) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.open {
		o, err := l.order(ctx, p.id)
		if err != nil {
			return l.broken, err
		}
		if o.Status.Final() { // the ledger says which are not
			l.judge(p, o)
		}
	}
	l.open = nil
	return l.broken, nil
}

// count counts a request that got the answer that is expected.
func (l *load) count(counter *int, r reply, err error, want int) error {
	if err != nil {
		return err
	}
	if r.status != want {
		return fmt.Errorf("the answer is %d instead of %d: %s", r.status, want, r.text())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	*counter++
	return nil
}

// stats returns what the load has done, and percentiles of the time that the last orders took.
func (l *load) stats() (c loadCounts, p50, p95 time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.took) == 0 {
		return l.counts, 0, 0
	}
	sorted := slices.Sorted(slices.Values(l.took))
	return l.counts, sorted[len(sorted)/2], sorted[len(sorted)*95/100]
}
