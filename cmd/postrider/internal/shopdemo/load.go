package shopdemo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/postrider/postrider/examples/shop"
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

// callers is how many requests are open at most.
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
	late    []string        // orders that can succeed and took longer than their caller waited
	broken  []string        // orders that could succeed and did not
}

// loadCounts is what a load has done.
type loadCounts struct {
	// Orders counts those that can succeed, Declined those that cannot; Late those of both that took longer than their caller waited.
	Orders, Declined, Late int
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
			if err := request(context.WithoutCancel(ctx)); err != nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.counts.Failed++
				l.failure = err
			}
		})
	}
}

// draw chooses the next request: half of them are orders, a tenth must be declined, a third are reads.
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
		return func(ctx context.Context) error {
			r, err := l.request(ctx, http.MethodPost, "payments", "/accounts", a)
			return l.count(&l.counts.Customers, r, err, http.StatusCreated)
		}
	}
}

func (l *load) read(ctx context.Context, service, path string) error {
	r, err := l.request(ctx, http.MethodGet, service, path, nil)
	return l.count(&l.counts.Reads, r, err, http.StatusOK)
}

// orderWait is how long a caller waits for the end of an order.
const orderWait = 5 * time.Second

// placeOrder places an order, waits for its end, and notes whether it is the one that is expected.
func (l *load) placeOrder(ctx context.Context, k kind, o orderRequest, want shop.Status, counter *int) error {
	id, begun := newOrder(), time.Now()
	r, err := l.place(ctx, k, id, o, 5)
	for attempt := 1; l.retry && attempt < 20 && (err != nil || r.status == http.StatusServiceUnavailable); attempt++ {
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
	for !placed.Status.Final() && time.Since(begun) < orderWait {
		time.Sleep(20 * time.Millisecond)
		if found, err := l.order(ctx, id); err == nil {
			placed = found
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	*counter++
	if l.took = append(l.took, time.Since(begun)); len(l.took) > latencies {
		l.took = slices.Delete(l.took, 0, latencies/2)
	}
	switch {
	case !placed.Status.Final():
		l.counts.Late++
		if want == shop.Shipped {
			l.late = append(l.late, id)
		}
	case placed.Status != want:
		l.broken = append(l.broken, fmt.Sprintf("order %s is %s instead of %s: %s", id, placed.Status, want, placed.Reason))
	}
	return nil
}

// failed returns the orders that could succeed and did not, when all are final.
func (l *load) failed(ctx context.Context) ([]string, error) {
	for _, id := range l.late {
		o, err := l.order(ctx, id)
		if err != nil {
			return l.broken, err
		}
		if o.Status != shop.Shipped {
			l.broken = append(l.broken, fmt.Sprintf("an order that could succeed did not: %s is %s: %s", o.ID, o.Status, o.Reason))
		}
	}
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
