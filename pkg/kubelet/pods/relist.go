package pods

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// How often the runtime is listed: while something is expected to change, when
// nothing is, and when events tell anyway.
const (
	relistFast   = 100 * time.Millisecond
	relistSlow   = time.Second
	relistSafety = 30 * time.Second

	eventsTrusted = 10 * time.Second // an event stream that lasts so long is one
)

// observer watches the runtime for changes: by its events where it has them,
// and by listing. It tells which pods changed, not what: workers look themselves.
type observer struct {
	runtime cri.Runtime
	log     *slog.Logger
	tell    func(types.UID)
	metrics *Metrics

	mu     sync.Mutex
	until  time.Time // changes are expected until then
	events bool      // the runtime's events are being read
	hurry  chan struct{}

	// Only one goroutine lists.
	last    map[string]seen // by id of sandbox or container
	boxes   []*runtimeapi.PodSandbox
	boxesAt time.Time // when they were listed
}

// seen is what a listing says of a sandbox or container.
type seen struct {
	uid   types.UID
	state int32
}

func newObserver(runtime cri.Runtime, log *slog.Logger, tell func(types.UID), metrics *Metrics) *observer {
	return &observer{runtime: runtime, log: log, tell: tell, metrics: metrics, hurry: make(chan struct{}, 1)}
}

// expect has the observer look often for a while.
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

// first lists until the runtime answers, and says which pods it has; nil when
// ctx ended first.
func (o *observer) first(ctx context.Context) map[types.UID]bool {
	for {
		list, err := o.list(ctx)
		if err == nil {
			o.last = list
			break
		}
		o.log.Warn("container runtime does not list its containers", "error", err)
		if !sleep(ctx, relistSlow, nil) {
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
	for sleep(ctx, o.pace(), o.hurry) {
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

// relist tells of every pod that has something new, gone or in another state.
func (o *observer) relist(ctx context.Context) {
	start := time.Now()
	list, err := o.list(ctx)
	if err != nil {
		return // the runtime is away: nothing is known
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
		o.tell(uid)
	}
}

// list lists containers, and sandboxes unless that was done just now: they
// change seldom, and listing them is the dearer call.
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

// follow reads the runtime's events as long as it has them. Listing goes on at
// a slower pace: events can be lost.
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
		if !sleep(ctx, relistSlow, nil) {
			return
		}
	}
}

// readEvents tells of events until the stream ends. A runtime without events
// ends it at once; one that has them may have nothing to say for long.
func (o *observer) readEvents(ctx context.Context, stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]) error {
	trusted := time.AfterFunc(eventsTrusted, func() {
		o.setEvents(true)
		poke(o.hurry) // what happened before the stream began is found by listing once more
	})
	defer trusted.Stop()
	for ctx.Err() == nil {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" {
			o.tell(types.UID(uid))
		} else {
			poke(o.hurry) // whose it was is found by listing
		}
	}
	return ctx.Err()
}

func (o *observer) setEvents(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = on
}
