package shopdemo

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postrider/postrider/examples/shop"
)

// killEvery is the time between two kills.
const killEvery = 3 * time.Second

func killServices(ctx context.Context, s *stage) error {
	rate, err := RateOf(cmp.Or(s.cfg.Load, "ambient"))
	if err != nil {
		return err
	}
	l := newLoad(s.world, rate)
	l.retry = true
	length := cmp.Or(s.cfg.For, time.Minute)
	loading, end := context.WithTimeout(ctx, length)
	defer end()
	var working sync.WaitGroup
	working.Go(func() { l.run(loading) })
	s.ledger.OverdueAfter = patience // whoever notices a deadline may be down
	random := rand.New(rand.NewPCG(s.cfg.Seed, 2))
	kills, next := 0, 0
	for {
		select {
		case <-loading.Done():
		case <-time.After(time.Duration(float64(killEvery) * (0.5 + random.Float64()))):
		}
		if loading.Err() != nil {
			break
		}
		name := shop.Names[next%len(shop.Names)] // in turn at first, so that a short run kills each
		if next++; next > len(shop.Names) {
			name = shop.Names[random.IntN(len(shop.Names))]
		}
		if err := s.service(name).kill(); err != nil {
			return err
		}
		kills++
		s.do("%s is killed and started again", name)
		if err := s.service(name).start(ctx); err != nil {
			return err
		}
	}
	working.Wait()
	counts, _, _ := l.stats()
	s.do("%d orders that can succeed, %d that are declined, %d of both answered later than their caller waited; %d of other requests failed", counts.Orders, counts.Declined, counts.Late, counts.Failed)
	tally, err := s.settle(ctx, 5*patience)
	s.expect(kills >= min(len(shop.Names), int(length/killEvery)), "services were killed %d times", kills)
	s.expect(tally.Open == 0, "every order is final: %d shipped, %d cancelled", tally.Shipped, tally.Cancelled)
	return err
}
