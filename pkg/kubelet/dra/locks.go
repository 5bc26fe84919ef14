package dra

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// locks are a lock for each claim: it is prepared or unprepared for one pod at a time.
type locks struct {
	mu   sync.Mutex
	held map[types.UID]*lock
}

type lock struct {
	turn  chan struct{} // semaphore of size 1
	users int
}

// lock blocks until the caller holds the locks of all claims, or ctx ends. All callers
// take them in the same order, so that none waits for another in a circle.
func (l *locks) lock(ctx context.Context, claims map[types.UID]bool) (unlock func(), err error) {
	var taken []types.UID
	unlock = func() {
		for _, uid := range taken {
			l.unlock(uid)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(claims)) {
		if err := l.one(ctx, uid); err != nil {
			unlock()
			return nil, err
		}
		taken = append(taken, uid)
	}
	return unlock, nil
}

func (l *locks) one(ctx context.Context, uid types.UID) error {
	l.mu.Lock()
	k := l.held[uid]
	if k == nil {
		k = &lock{turn: make(chan struct{}, 1)}
		l.held[uid] = k
	}
	k.users++
	l.mu.Unlock()
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		l.leave(uid)
		return ctx.Err()
	}
}

func (l *locks) unlock(uid types.UID) {
	l.mu.Lock()
	k := l.held[uid]
	l.mu.Unlock()
	<-k.turn
	l.leave(uid)
}

func (l *locks) leave(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.held[uid]; k.users == 1 {
		delete(l.held, uid)
	} else {
		k.users--
	}
}
