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
	loading, end := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() { l.run(loading) })
	kills, err := s.kill(ctx, cmp.Or(s.cfg.For, time.Minute))
	end()
	working.Wait()
	if err != nil {
		return err
	}
	counts, _, _ := l.stats()
	s.do("%d orders that can succeed, %d that are declined, %d of both took longer than %s; %d of other requests failed", counts.Orders, counts.Declined, counts.Late, orderWait, counts.Failed)
	tally, err := s.settle(ctx)
	s.expect(kills >= len(shop.Names), "services were killed %d times", kills)
	s.expect(tally.Open == 0, "every order is final: %d shipped, %d cancelled", tally.Shipped, tally.Cancelled)
	return err
}

// kill kills services and starts them again, for a time and until each was killed.
func (s *stage) kill(ctx context.Context, length time.Duration) (kills int, err error) {
	random := rand.New(rand.NewPCG(s.cfg.Seed, 2))
	for begun := time.Now(); kills < len(shop.Names) || time.Since(begun) < length; kills++ {
		select {
		case <-ctx.Done():
			return kills, ctx.Err()
		case <-time.After(time.Duration(float64(killEvery) * (0.5 + random.Float64()))):
		}
		name := shop.Names[random.IntN(len(shop.Names))]
		if kills < len(shop.Names) {
			name = shop.Names[kills]
		}
		if err := s.service(name).kill(); err != nil {
			return kills, err
		}
		s.do("%s is killed and started again", name)
		if err := s.service(name).start(ctx); err != nil {
			return kills, err
		}
	}
	return kills, nil
}
