package flowcontrol

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

func TestDivide(t *testing.T) {
	for name, tc := range map[string]struct {
		seats  int
		claims []claim
		want   string
	}{
		"by targets":                       {100, []claim{{0, 0, 100, 10}, {0, 0, 100, 30}}, "[25 75]"},
		"no more than the most":            {100, []claim{{0, 0, 100, 10}, {0, 0, 40, 30}}, "[60 40]"},
		"no less than the demand":          {100, []claim{{5, 60, 100, 60}, {5, 5, 100, 200}}, "[60 40]"},
		"no level wants seats":             {100, []claim{{10, 10, 200, 10}, {30, 30, 200, 30}}, "[25 75]"},
		"too few for the demand":           {50, []claim{{10, 50, 100, 50}, {20, 20, 100, 20}}, "[30 20]"},
		"too few for the least":            {10, []claim{{10, 50, 100, 50}, {20, 20, 100, 20}}, "[10 20]"},
		"levels without a target get some": {100, []claim{{0, 0, 100, 0}, {0, 0, 100, 0}}, "[50 50]"},
	} {
		limits, _ := divide(tc.seats, tc.claims)
		if got := fmt.Sprint(limits); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestDemandIsSmoothed(t *testing.T) {
	at := time.Unix(0, 0)
	after := func(seconds float64) time.Time { return at.Add(time.Duration(seconds * float64(time.Second))) }
	var d demand
	d.reset(at)
	d.set(10, after(5))
	d.set(0, after(10))
	d.endPeriod(after(10))
	if d.high != 10 || d.average != 5 || d.dev != 5 || d.smoothed != 10 {
		t.Errorf("%+v", d)
	}
	d.endPeriod(after(20))
	if d.high != 0 || d.average != 0 || d.smoothed != 9.77 {
		t.Errorf("%+v", d)
	}
}

// A busy level borrows what idle ones lend, and returns it when they need it.
func TestBorrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{Reads: 400, Writes: 200, Wait: time.Hour})
		busy, other := f.classify(get("mallory")).level, f.classify(lease("system:node:a", nodesGroup)).level
		release := make(chan struct{})
		for i := range 400 {
			p := begun(t, f, get(fmt.Sprint("user-", i)))
			go func() {
				defer p.End()
				if p.TakeSeat(t.Context(), 1) == nil {
					<-release
				}
			}()
		}
		time.Sleep(borrowEvery)
		f.rebuild()
		synctest.Wait()
		if busy.max < 200 || busy.running != busy.max {
			t.Errorf("%d of 400 requests run, of %d seats", busy.running, busy.max)
		}
		if other.max < other.cfg.min || other.cfg.min != 73 {
			t.Errorf("a level has lent more than it may: %d < %d", other.max, other.cfg.min)
		}
		close(release)
		synctest.Wait()
		if busy.runningSeats != 0 || len(busy.queues) != 0 {
			t.Errorf("%d seats are taken", busy.runningSeats)
		}
	})
}

// Any order of changed objects leads to a plan that classifies every request, and no
// request is lost in a level that is removed or has other queues.
func TestObjectsChangeUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, random := New(Config{Reads: 40, Writes: 20, Wait: time.Minute}), rand.New(rand.NewPCG(1, 2))
		level := func() *flowcontrolv1.PriorityLevelConfiguration {
			shares, n := random.Int32N(5), 1+random.Int32N(20)
			l := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
			l.Spec.Type = flowcontrolv1.PriorityLevelEnablementLimited
			l.Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares}
			l.Spec.Limited.LimitResponse.Queuing = &flowcontrolv1.QueuingConfiguration{Queues: n, HandSize: 1 + random.Int32N(n)/2, QueueLengthLimit: 50}
			return l
		}
		f.Schemas().Put(&flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence: 3, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "mine"},
			Rules: f.objects.schemas["global-default"].Spec.Rules,
		}})
		var done, refused atomic.Int32
		for i := range 2000 {
			go func() {
				p := begun(t, f, get(fmt.Sprint("user-", i%100)))
				defer p.End()
				if p.TakeSeat(t.Context(), 1+i%3) != nil {
					refused.Add(1)
					return
				}
				time.Sleep(time.Duration(i%50) * time.Millisecond)
				done.Add(1)
			}()
			synctest.Wait()
			switch random.IntN(20) {
			case 0:
				f.Levels().Remove("", "mine")
			case 1:
				f.Levels().Put(level())
			case 2:
				f.Levels().Replace([]scheme.Object{level()})
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		f.rebuild()
		if done.Load()+refused.Load() != 2000 || done.Load() < 1000 {
			t.Errorf("%d done, %d refused", done.Load(), refused.Load())
		}
		for _, l := range f.plan.Load().levels {
			if l.running+l.waiting+l.runningSeats+l.waitingSeats != 0 || len(l.queues)+len(l.waitingIn) != 0 || l.cfg.quiescing {
				t.Errorf("%s: %+v", l.name, l)
			}
		}
	})
}

func TestHands(t *testing.T) {
	const deck, hand = 128, 6
	counts := make([]int, deck)
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		cards := deal(nil, random.Uint64(), deck, hand)
		for _, c := range cards {
			counts[c]++
		}
		slices.Sort(cards)
		if len(slices.Compact(cards)) != hand {
			t.Fatalf("%v", cards)
		}
	}
	if low, high := slices.Min(counts), slices.Max(counts); low < 4300 || high > 5100 { // 4688 on average
		t.Errorf("cards are dealt between %d and %d times", low, high)
	}
	if cards := deal(nil, 12345, 3, 3); len(cards) != 3 {
		t.Errorf("%v", cards)
	}
}
