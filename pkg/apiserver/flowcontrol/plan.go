package flowcontrol

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"podium/pkg/apiserver/flowcontrol/defaults"
	"podium/pkg/scheme"
)

// plan is what the objects configure. It is immutable, except for the state of its
// levels.
type plan struct {
	schemas  []*schema // in the order in which they are tried
	catchAll *schema   // for requests that match none
	levels   []*level  // by name; includes removed ones that still have requests
	fraction float64   // of their targets that the levels get
}

// levelConfig is what a PriorityLevelConfiguration says of its level.
type levelConfig struct {
	exempt    bool
	quiescing bool // the object is gone; the level has requests left
	uid       []string

	shares             int
	lendable           int // percent
	borrowing          int // percent; -1: no limit
	nominal, min, most int // seats: by its shares, after lending all it may, after borrowing all it may

	queues, hand, length int // queues 0: nothing waits
	widest               int // how many seats a request may take
}

// maxWidth is how many seats a request may take in any level.
const maxWidth = 10

// unlimited is the number of seats if there is no limit.
const unlimited = 1 << 20

// objects are the stored objects, by name; shared, not modified.
type objects struct {
	schemas map[string]*flowcontrolv1.FlowSchema
	levels  map[string]*flowcontrolv1.PriorityLevelConfiguration
}

// setDefaults starts with the objects that the server is going to create.
func (o *objects) setDefaults() {
	o.schemas, o.levels = map[string]*flowcontrolv1.FlowSchema{}, map[string]*flowcontrolv1.PriorityLevelConfiguration{}
	for _, s := range defaults.Schemas() {
		o.schemas[s.Name] = s
	}
	for _, l := range defaults.Levels() {
		o.levels[l.Name] = l
	}
}

// Schemas returns a follower of the FlowSchemas.
func (f *Limiter) Schemas() Follower[*flowcontrolv1.FlowSchema] {
	return Follower[*flowcontrolv1.FlowSchema]{f, f.objects.schemas}
}

// Levels returns a follower of the PriorityLevelConfigurations.
func (f *Limiter) Levels() Follower[*flowcontrolv1.PriorityLevelConfiguration] {
	return Follower[*flowcontrolv1.PriorityLevelConfiguration]{f, f.objects.levels}
}

// Changed returns a channel that has an element after objects have changed.
func (f *Limiter) Changed() <-chan struct{} { return f.changed }

// Follower puts changed objects into effect. It implements watchcache.Follower.
type Follower[T scheme.Object] struct {
	f       *Limiter
	objects map[string]T
}

// Replace implements watchcache.Follower.
func (o Follower[T]) Replace(all []scheme.Object) {
	o.change(func() {
		clear(o.objects)
		for _, obj := range all {
			o.objects[obj.GetName()] = obj.(T)
		}
	})
}

// Put implements watchcache.Follower.
func (o Follower[T]) Put(obj scheme.Object) {
	o.change(func() { o.objects[obj.GetName()] = obj.(T) })
}

// Remove implements watchcache.Follower.
func (o Follower[T]) Remove(_, name string) { o.change(func() { delete(o.objects, name) }) }

func (o Follower[T]) change(apply func()) {
	o.f.planning.Lock()
	apply()
	o.f.planning.Unlock()
	o.f.rebuild()
	select {
	case o.f.changed <- struct{}{}:
	default:
	}
}

// rebuild makes a plan of the objects and puts it into effect. Levels and series that
// stay keep their state.
func (f *Limiter) rebuild() {
	f.planning.Lock()
	defer f.planning.Unlock()
	old, now := f.plan.Load(), f.cfg.Now()
	if old == nil {
		old = &plan{}
	}
	levels := map[string]*level{}
	for _, l := range old.levels {
		levels[l.name] = l
	}
	configs := f.configs(levels)
	for name, cfg := range configs {
		if levels[name] == nil {
			levels[name] = newLevel(name, now)
		}
		levels[name].configure(cfg)
	}
	maps.DeleteFunc(levels, func(name string, _ *level) bool { _, ok := configs[name]; return !ok })
	p := &plan{levels: slices.SortedFunc(maps.Values(levels), func(a, b *level) int { return cmp.Compare(a.name, b.name) })}
	p.schemas = f.schemas(levels, configs)
	p.catchAll = p.schemas[slices.IndexFunc(p.schemas, func(s *schema) bool { return s.name == flowcontrolv1.FlowSchemaNameCatchAll })]
	p.fraction = borrow(p.levels, now)
	f.plan.Store(p)
}

// configs returns the configuration of each level: those of the objects, the mandatory
// ones, and the removed ones that still have requests.
func (f *Limiter) configs(present map[string]*level) map[string]levelConfig {
	configs, sum := map[string]levelConfig{}, 0
	add := func(name string, cfg levelConfig) {
		if _, ok := configs[name]; !ok {
			configs[name] = cfg
			sum += cfg.shares
		}
	}
	for name, l := range f.objects.levels {
		add(name, configOf(l))
	}
	for _, l := range defaults.Levels() {
		if defaults.Mandatory(l.Name) {
			add(l.Name, configOf(l))
		}
	}
	for name, l := range present {
		if !l.idle() {
			cfg := l.config()
			cfg.quiescing = true
			add(name, cfg)
		}
	}
	seats := f.cfg.Reads + f.cfg.Writes
	if seats == 0 {
		seats = unlimited
	}
	for name, cfg := range configs {
		cfg.divide(seats, sum)
		configs[name] = cfg
	}
	return configs
}

func configOf(o *flowcontrolv1.PriorityLevelConfiguration) levelConfig {
	cfg := levelConfig{uid: uidHeader(string(o.UID)), exempt: o.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt, borrowing: -1}
	number := func(n *int32) int {
		if n == nil {
			return 0
		}
		return int(*n)
	}
	if e := o.Spec.Exempt; e != nil {
		cfg.shares, cfg.lendable = number(e.NominalConcurrencyShares), number(e.LendablePercent)
	}
	if l := o.Spec.Limited; l != nil {
		cfg.shares, cfg.lendable = number(l.NominalConcurrencyShares), number(l.LendablePercent)
		if l.BorrowingLimitPercent != nil {
			cfg.borrowing = number(l.BorrowingLimitPercent)
		}
		if q := l.LimitResponse.Queuing; q != nil {
			cfg.queues, cfg.hand, cfg.length = int(q.Queues), int(q.HandSize), int(q.QueueLengthLimit)
		}
	}
	return cfg
}

// divide sets the seats of the level, out of all seats and the sum of all shares.
func (c *levelConfig) divide(seats, sum int) {
	percent := func(n int) int { return int(math.Round(float64(c.nominal) * float64(n) / 100)) }
	c.nominal = int(math.Ceil(float64(seats) * float64(c.shares) / float64(max(sum, 1))))
	c.min = c.nominal - percent(c.lendable)
	c.most = c.nominal + seats
	if c.borrowing >= 0 {
		c.most = c.nominal + percent(c.borrowing)
	}
	c.widest = maxWidth
	if c.queues > 0 {
		c.widest = min(maxWidth, max(1, min(int(math.Ceil(float64(c.nominal)*0.15)), c.nominal/c.hand)))
	}
}

func uidHeader(uid string) []string {
	if uid == "" {
		return nil
	}
	return []string{uid}
}

// configure puts a configuration into effect. Requests in queues that it does not have
// stay there until they are dispatched.
func (l *level) configure(cfg levelConfig) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = cfg
	if cfg.queues == 0 {
		l.spare = nil
	}
}

func (l *level) config() levelConfig {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg
}

// schemas returns the FlowSchemas in the order in which they are tried. Those whose
// level does not exist are left out.
func (f *Limiter) schemas(levels map[string]*level, configs map[string]levelConfig) []*schema {
	all := maps.Clone(f.objects.schemas)
	for _, s := range defaults.Schemas() {
		if defaults.Mandatory(s.Name) && all[s.Name] == nil {
			all[s.Name] = s
		}
	}
	var out []*schema
	for name, o := range all {
		of := o.Spec.PriorityLevelConfiguration.Name
		if levels[of] == nil || configs[of].quiescing {
			continue
		}
		out = append(out, &schema{
			name: name, spec: &o.Spec, level: levels[of], series: f.metrics.series(of, name),
			uids: [2][]string{uidHeader(string(o.UID)), configs[of].uid},
		})
	}
	slices.SortFunc(out, func(a, b *schema) int {
		return cmp.Or(cmp.Compare(a.spec.MatchingPrecedence, b.spec.MatchingPrecedence), cmp.Compare(a.name, b.name))
	})
	return out
}

// plainSchema returns the schema of reads or writes without priorities.
func (f *Limiter) plainSchema(name string, seats int) *schema {
	if seats == 0 {
		seats = unlimited
	}
	l := newLevel(name, f.cfg.Now())
	l.cfg.widest, l.max = 1, seats
	return &schema{name: name, spec: &flowcontrolv1.FlowSchemaSpec{}, level: l, series: f.metrics.series(name, name)}
}

// borrow divides the seats among the levels by their demand since the last call, and
// returns the fraction of its target that each gets.
func borrow(levels []*level, now time.Time) (fraction float64) {
	var claims []claim
	seats := 0
	for _, l := range levels {
		c := l.claim(now)
		if seats += l.cfg.nominal; l.cfg.exempt {
			seats -= c.atLeast
			continue
		}
		claims = append(claims, c)
	}
	limits, fraction := divide(seats, claims)
	for _, l := range levels {
		if !l.cfg.exempt {
			l.resize(limits[0], now)
			limits = limits[1:]
		}
	}
	return fraction
}

// claim ends a period of the level's demand, and returns what it can use.
func (l *level) claim(now time.Time) claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.demand
	d.endPeriod(now)
	c := claim{least: l.cfg.min, atLeast: max(l.cfg.min, min(l.cfg.nominal, d.high)), most: l.cfg.most}
	if l.cfg.exempt {
		c.atLeast = max(l.cfg.min, d.high)
		l.max = c.atLeast
	}
	c.target = max(float64(c.atLeast), d.smoothed)
	d.target = c.target
	return c
}

// resize sets the number of seats that the level may use, and dispatches requests if
// there are more.
func (l *level) resize(seats int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	l.max = seats
	l.dispatchAll(now)
}
