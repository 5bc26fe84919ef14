package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/backoff"
	"podium/pkg/client"
)

// Config describes the Lease and the timing. Zero durations mean the defaults.
type Config struct {
	Client    *client.Client
	Namespace string // of the Lease; default kube-system
	Name      string
	Identity  string // of this replica; must be unique

	LeaseDuration time.Duration // time after the last observed renewal until others acquire the Lease; default 15 s
	RenewDeadline time.Duration // time after the last renewal until the leader stops; default 10 s
	RetryPeriod   time.Duration // between attempts; default 2 s

	Log       *slog.Logger
	OnLeading func(leading bool) // called when leadership begins and ends (metrics); may be nil
}

// ErrLost means that the leader could not renew its Lease in time, or that another
// replica holds it.
var ErrLost = errors.New("leader election lost")

// releaseTimeout is the timeout of the write that releases the Lease.
const releaseTimeout = 5 * time.Second

// Run blocks until this replica leads, then calls lead with a context that ends with
// ctx or when leadership is lost (context.Cause is then ErrLost). When leadership is
// lost, Run waits for lead to return, competes again and calls lead again: lead must
// start from scratch each time. When lead returns while it leads, Run releases the
// Lease and returns lead's error. If ctx ends before this replica leads, Run returns
// nil.
func Run(ctx context.Context, cfg Config, lead func(context.Context) error) error {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return err
	}
	for {
		err := turn(ctx, cfg, lead)
		if !errors.Is(err, ErrLost) {
			return err
		}
		cfg.Log.Warn("lease lost", "lease", cfg.Name, "error", err)
	}
}

// turn waits for leadership and calls lead once. It returns ErrLost, joined with lead's
// error, if leadership was lost.
func turn(ctx context.Context, cfg Config, lead func(context.Context) error) error {
	e := &elector{cfg: cfg, leases: client.For[*coordinationv1.Lease](cfg.Client).In(cfg.Namespace)}
	if !e.acquire(ctx) {
		return nil
	}
	e.leading(true)
	defer e.leading(false)
	defer e.release()

	leadCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- lead(leadCtx) }()
	renewCtx, stopRenewing := context.WithCancel(ctx)
	defer stopRenewing()
	renewal := make(chan struct{})
	go func() {
		defer close(renewal)
		e.renew(renewCtx)
	}()
	select {
	case err := <-done:
		stopRenewing()
		<-renewal
		return err
	case <-renewal:
	}
	stop(ErrLost)
	err := <-done
	if ctx.Err() != nil {
		return err // not lost: ctx ended
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(ErrLost, err)
}

func (c *Config) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.LeaseDuration, 15*time.Second)
	def(&c.RenewDeadline, 10*time.Second)
	def(&c.RetryPeriod, 2*time.Second)
	if c.Namespace == "" {
		c.Namespace = metav1.NamespaceSystem
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func (c *Config) validate() error {
	var errs []error
	if c.Name == "" || c.Identity == "" {
		errs = append(errs, errors.New("leader election: the lease's name and the identity are needed"))
	}
	if c.LeaseDuration <= c.RenewDeadline {
		errs = append(errs, fmt.Errorf("leader election: lease duration %v must be longer than the renew deadline %v", c.LeaseDuration, c.RenewDeadline))
	}
	if c.RenewDeadline <= c.RetryPeriod {
		errs = append(errs, fmt.Errorf("leader election: renew deadline %v must be longer than the retry period %v", c.RenewDeadline, c.RetryPeriod))
	}
	return errors.Join(errs...)
}

// elector tracks one Lease. It decides by its own clock whether another replica's Lease
// has expired, from when it first saw the Lease's last change: the clocks of the
// replicas need not agree.
type elector struct {
	cfg    Config
	leases client.Resource[*coordinationv1.Lease]

	seen   *coordinationv1.Lease // as last read or written
	seenAt time.Time             // when seen was first observed
	isOurs bool
}

func (e *elector) leading(yes bool) {
	if yes {
		e.cfg.Log.Info("lease acquired", "lease", e.cfg.Name, "identity", e.cfg.Identity)
	}
	if e.cfg.OnLeading != nil {
		e.cfg.OnLeading(yes)
	}
}

// acquire blocks until this replica holds the Lease. It returns false if ctx ends first.
func (e *elector) acquire(ctx context.Context) bool {
	for {
		if err := e.try(ctx); err != nil && ctx.Err() == nil {
			e.cfg.Log.Debug("acquire lease failed", "lease", e.cfg.Name, "error", err)
		}
		if e.isOurs {
			return ctx.Err() == nil || e.giveUp()
		}
		if e.left() > 0 && e.follow(ctx) {
			continue
		}
		if backoff.Sleep(ctx, e.wait()) != nil {
			return false
		}
	}
}

// follow watches the Lease until it is free or expires, and returns true then. Without the
// watch this replica would see the last renewal up to a period late, and wait longer by
// that. follow returns false if the watch fails or ends; the replica then polls.
func (e *elector) follow(ctx context.Context) bool {
	ctx, expire := context.WithCancel(ctx)
	defer expire()
	w, err := e.leases.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, e.cfg.Name).String(), ResourceVersion: e.seen.ResourceVersion,
	})
	if err != nil {
		e.cfg.Log.Debug("watch lease failed", "lease", e.cfg.Name, "error", err)
		return false
	}
	defer w.Stop()
	expiry := time.AfterFunc(e.left(), expire)
	defer expiry.Stop()
	for {
		event, err := w.Next()
		if err != nil {
			return e.left() <= 0
		}
		if event.Type == watch.Deleted {
			e.seen = nil
			return true
		}
		e.observe(event.Object)
		if holder(e.seen) == "" {
			return true
		}
		expiry.Reset(e.left())
	}
}

// wait returns the delay until the next attempt: until the Lease expires, but at most
// one period.
func (e *elector) wait() time.Duration {
	// Jitter, so that replicas that started together do not collide repeatedly.
	period := e.cfg.RetryPeriod + time.Duration(rand.Float64()*0.2*float64(e.cfg.RetryPeriod))
	left := e.left()
	if left <= 0 {
		return period
	}
	return min(period, left)
}

// left returns the time until the Lease, as last observed, expires; 0 if it is free or
// unknown.
func (e *elector) left() time.Duration {
	if e.seen == nil || holder(e.seen) == "" {
		return 0
	}
	return time.Until(e.runsOut())
}

// runsOut returns when the Lease, as last observed, expires.
func (e *elector) runsOut() time.Time {
	return e.seenAt.Add(duration(e.seen, e.cfg.LeaseDuration))
}

// giveUp releases a Lease that was acquired after ctx had ended. It returns false.
func (e *elector) giveUp() bool {
	e.release()
	return false
}

// renew renews the Lease until it is lost or ctx ends.
func (e *elector) renew(ctx context.Context) {
	renewed := time.Now()
	for backoff.Sleep(ctx, e.cfg.RetryPeriod) == nil {
		// Leave time to try another server when one does not answer.
		began := time.Now()
		deadline, cancel := context.WithTimeout(ctx, min(e.cfg.RenewDeadline/2, time.Until(renewed.Add(e.cfg.RenewDeadline))))
		err := e.try(deadline)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil && e.isOurs {
			renewed = began
			continue
		}
		if err == nil {
			e.cfg.Log.Warn("lease held by another replica", "lease", e.cfg.Name, "holder", holder(e.seen))
			return
		}
		e.cfg.Log.Warn("renew lease failed", "lease", e.cfg.Name, "error", err)
		if time.Since(renewed) >= e.cfg.RenewDeadline {
			e.isOurs = false
			return
		}
	}
}

// try reads the Lease and writes it if it is held by this replica, free or expired. It
// returns nil if another replica holds it.
func (e *elector) try(ctx context.Context) error {
	if e.isOurs { // usually no other replica wrote in between: no need to read first
		if err := e.write(ctx, e.seen); err == nil || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	lease, err := e.leases.Get(ctx, e.cfg.Name)
	if apierrors.IsNotFound(err) {
		e.isOurs = false
		return e.create(ctx)
	}
	if err != nil {
		return err
	}
	e.observe(lease)
	if h := holder(lease); h != "" && h != e.cfg.Identity && time.Now().Before(e.runsOut()) {
		e.isOurs = false
		return nil
	}
	return e.write(ctx, lease)
}

func (e *elector) observe(lease *coordinationv1.Lease) {
	if e.seen == nil || e.seen.ResourceVersion != lease.ResourceVersion || e.seen.UID != lease.UID {
		e.seenAt = time.Now()
	}
	e.seen = lease
}

func (e *elector) create(ctx context.Context) error {
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.cfg.Namespace, Name: e.cfg.Name},
		Spec:       e.spec(now, now, 0),
	}
	return e.wrote(e.leases.Create(ctx, lease))
}

func (e *elector) write(ctx context.Context, from *coordinationv1.Lease) error {
	now := metav1.NowMicro()
	lease := from.DeepCopy()
	acquired, transitions := now, int32(0)
	if lease.Spec.LeaseTransitions != nil {
		transitions = *lease.Spec.LeaseTransitions
	}
	if holder(lease) == e.cfg.Identity {
		if lease.Spec.AcquireTime != nil {
			acquired = *lease.Spec.AcquireTime
		}
	} else {
		transitions++
	}
	lease.Spec = e.spec(acquired, now, transitions)
	return e.wrote(e.leases.Update(ctx, lease))
}

func (e *elector) spec(acquired, renewed metav1.MicroTime, transitions int32) coordinationv1.LeaseSpec {
	seconds := max(1, int32(e.cfg.LeaseDuration.Seconds()))
	return coordinationv1.LeaseSpec{
		HolderIdentity:       &e.cfg.Identity,
		LeaseDurationSeconds: &seconds,
		AcquireTime:          &acquired,
		RenewTime:            &renewed,
		LeaseTransitions:     &transitions,
	}
}

func (e *elector) wrote(lease *coordinationv1.Lease, err error) error {
	if err != nil {
		return err
	}
	e.observe(lease)
	e.isOurs = true
	return nil
}

// release clears the holder, so that another replica can acquire the Lease at once.
func (e *elector) release() {
	if !e.isOurs {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	now := metav1.NowMicro()
	free, second := "", int32(1)
	lease := e.seen.DeepCopy()
	lease.Spec.HolderIdentity = &free
	lease.Spec.LeaseDurationSeconds = &second
	lease.Spec.RenewTime = &now
	lease.Spec.AcquireTime = &now
	if _, err := e.leases.Update(ctx, lease); err != nil {
		e.cfg.Log.Warn("release lease failed; it will expire", "lease", e.cfg.Name, "error", err)
	}
	e.isOurs = false
}

func holder(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func duration(l *coordinationv1.Lease, def time.Duration) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return def
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}
