package main

import (
	"context"
	"slices"
	"time"
)

const listingPace = 20 * time.Millisecond

// listing lists a page of 100 pods at a steady pace, on a connection of its own, until
// done is called. That prints how long the lists took in the first and in the last third:
// whether they become slower with the number of pods stored. Without -listing it does nothing.
func (b *bench) listing(conc int) (done func() error) {
	if !b.whileCreating {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan struct{})
	var took []time.Duration
	var failed error
	go func() {
		defer close(ended)
		hc, buf := b.connection(), make([]byte, 256<<10)
		defer hc.CloseIdleConnections()
		for tick := time.NewTicker(listingPace); ctx.Err() == nil; {
			start := time.Now()
			if _, err := b.drainOn(ctx, hc, b.all+"?limit=100", buf); err != nil {
				if ctx.Err() == nil {
					failed = err
				}
				return
			}
			took = append(took, time.Since(start))
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return func() error {
		cancel()
		<-ended
		if third := len(took) / 3; third > 0 {
			first, last := slices.Sorted(slices.Values(took[:third])), slices.Sorted(slices.Values(took[2*third:]))
			b.emit(map[string]any{"phase": "list_while_creating", "conc": conc, "ops": len(took),
				"first_p50_ms": ms(quantile(first, .5)), "first_p99_ms": ms(quantile(first, .99)), "last_p50_ms": ms(quantile(last, .5)), "last_p99_ms": ms(quantile(last, .99))})
		}
		return failed
	}
}
