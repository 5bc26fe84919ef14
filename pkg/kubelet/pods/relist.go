package pods

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/cri"
)

// The intervals between listings of the runtime: while a change is expected, while
// none is, and while the runtime's events are read.
const (
	relistFast   = 100 * time.Millisecond
	relistSlow   = time.Second
	relistSafety = 30 * time.Second

	eventsTrusted = 10 * time.Second // an event stream that lasts this long is trusted
)

// observer watches the runtime for changes by its events, if it has them, and by
// listing. It notifies workers only of which pods changed; they read the state.
type observer struct {
	runtime cri.Runtime
	log     *slog.Logger
	notify  func(types.UID)
	metrics *Metrics

	mu     sync.Mutex
	until  time.Time // changes are expected until then
	events bool      // the runtime's events are trusted
	hurry  chan struct{}

	// Only the goroutine of first and run uses these.
	last    map[string]seen // by id of sandbox or container
	boxes   []*runtimeapi.PodSandbox
	boxesAt time.Time // when they were listed
}

// seen is the listed state of a sandbox or container.
type seen struct {
	uid   types.UID
	state int32
}

func newObserver(runtime cri.Runtime, log *slog.Logger, notify func(types.UID), metrics *Metrics) *observer {
	return &observer{runtime: runtime, log: log, notify: notify, metrics: metrics, hurry: make(chan struct{}, 1)}
}

// expect makes the observer list at the fast pace for d.
func (o *observer) expect(d time.Duration) {
	o.mu.Lock()
	until := time.Now().Add(d)
	wake := !o.events && time.Now().After(o.until)
	if until.After(o.until) {
		o.until = until
	}
	o.mu.Unlock()
	if wake {
		poke(o.hurry)
	}
}

// first lists until the runtime answers and returns the pods that the runtime has.
// It returns nil if ctx ended first. Call it before run.
func (o *observer) first(ctx context.Context) map[types.UID]bool {
	for {
		list, err := o.list(ctx)
		if err == nil {
			o.last = list
			break
		}
		o.log.Warn("list containers failed", "error", err)
		if backoff.Sleep(ctx, relistSlow) != nil {
			return nil
		}
	}
	pods := map[types.UID]bool{}
	for _, s := range o.last {
		pods[s.uid] = true
	}
	return pods
}

func (o *observer) run(ctx context.Context) {
	var events sync.WaitGroup
	events.Go(func() { o.follow(ctx) })
	defer events.Wait()
	for backoff.SleepOrWake(ctx, o.pace(), o.hurry) == nil {
		o.relist(ctx)
	}
}

func (o *observer) pace() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.events:
		return relistSafety
	case time.Now().Before(o.until):
		return relistFast
	}
	return relistSlow
}

// relist lists and notifies the workers of pods with changes.
func (o *observer) relist(ctx context.Context) {
	start := time.Now()
	list, err := o.list(ctx)
	if err != nil {
		return // the runtime does not answer
	}
	o.metrics.relisted(time.Since(start))
	changed := map[types.UID]bool{}
	for id, s := range list {
		if o.last[id] != s {
			changed[s.uid] = true
		}
	}
	for id, s := range o.last {
		if _, still := list[id]; !still {
			changed[s.uid] = true
		}
	}
	o.last = list
	for uid := range changed {
		o.notify(uid)
	}
}

// list lists containers, and sandboxes unless that was done less than relistSlow
// ago: sandboxes change rarely, and listing them costs more.
func (o *observer) list(ctx context.Context) (map[string]seen, error) {
	now := time.Now()
	if now.Sub(o.boxesAt) >= relistSlow {
		res, err := o.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return nil, err
		}
		o.boxes, o.boxesAt = res.Items, now
	}
	res, err := o.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	out := make(map[string]seen, len(o.boxes)+len(res.Containers))
	var runningPods, runningContainers int
	for _, b := range o.boxes {
		if uid := b.Labels[cri.LabelPodUID]; uid != "" {
			out[b.Id] = seen{types.UID(uid), int32(b.State)}
		}
		if b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			runningPods++
		}
	}
	for _, c := range res.Containers {
		if uid := c.Labels[cri.LabelPodUID]; uid != "" {
			out[c.Id] = seen{types.UID(uid), int32(c.State)}
		}
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			runningContainers++
		}
	}
	o.metrics.runningNow(runningPods, runningContainers)
	return out, nil
}

// follow reads the runtime's events until ctx ends or the runtime does not implement
// them. Listing continues at a slower pace, because events can be lost.
func (o *observer) follow(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := o.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err == nil {
			err = o.readEvents(ctx, stream)
		}
		o.setEvents(false)
		if cri.Unimplemented(err) {
			return
		}
		if backoff.Sleep(ctx, relistSlow) != nil {
			return
		}
	}
}

// readEvents handles events until the stream ends. A runtime without events ends
// the stream at once, so the stream is trusted only after eventsTrusted.
func (o *observer) readEvents(ctx context.Context, stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]) error {
	trusted := time.AfterFunc(eventsTrusted, func() {
		o.setEvents(true)
		poke(o.hurry) // list once more for changes from before the stream began
	})
	defer trusted.Stop()
	for ctx.Err() == nil {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" {
			o.notify(types.UID(uid))
		} else {
			poke(o.hurry) // find the pod by listing
		}
	}
	return ctx.Err()
}

func (o *observer) setEvents(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = on
}
