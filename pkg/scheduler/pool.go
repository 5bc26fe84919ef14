package scheduler

import "sync"

// pool runs functions in the order of the calls of do, at most max concurrently. do never
// blocks.
type pool struct {
	max int

	mu      sync.Mutex
	running int
	waiting []func()
	wg      sync.WaitGroup
}

func (p *pool) do(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running >= p.max {
		p.waiting = append(p.waiting, f)
		return
	}
	p.running++
	p.wg.Go(func() { p.work(f) })
}

func (p *pool) work(f func()) {
	for f != nil {
		f()
		f = p.next()
	}
}

func (p *pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		p.waiting = nil
		p.running--
		return nil
	}
	f := p.waiting[0]
	p.waiting[0] = nil
	p.waiting = p.waiting[1:]
	return f
}

// aside runs a function that may block for long, beside those of do, without counting it.
func (p *pool) aside(f func()) { p.wg.Go(f) }

// wait blocks until all functions have returned. Only they may call do and aside meanwhile.
func (p *pool) wait() { p.wg.Wait() }
