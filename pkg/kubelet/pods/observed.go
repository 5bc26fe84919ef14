package pods

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// A sandbox holds a pod's network and its addresses.
type sandbox struct {
	id      string
	ready   bool
	attempt uint32
	created time.Time
	ips     []string
}

// A container is one attempt at running a container of the spec.
type container struct {
	id, sandboxID, name        string
	state                      runtimeapi.ContainerState
	attempt                    int32 // the restart count
	created, started, finished time.Time
	exitCode                   int32
	reason, message            string
	image, imageRef            string
	annotations                map[string]string
	user                       *runtimeapi.ContainerUser
	resources                  *runtimeapi.LinuxContainerResources
	stopSignal                 *corev1.Signal  // nil: the runtime does not report it
	recursive                  map[string]bool // paths that are read-only with all mounts below them
	terminationMessage         string          // read when the container was first seen exited
	statusRead                 bool
	replaced                   bool // it was stopped because new resources or a new image need a new container
}

func (c *container) running() bool { return c.state == runtimeapi.ContainerState_CONTAINER_RUNNING }
func (c *container) exited() bool  { return c.state == runtimeapi.ContainerState_CONTAINER_EXITED }

// restartDelay returns the back-off after this container.
func (c *container) restartDelay() time.Duration {
	d, err := time.ParseDuration(c.annotations[cri.AnnotationRestartDelay])
	if err != nil {
		return 0
	}
	return d
}

// observed is the state of one pod in the runtime, newest first.
type observed struct {
	sandboxes  []sandbox
	containers []*container
}

// current returns the newest sandbox, nil if there is none.
func (o *observed) current() *sandbox {
	if len(o.sandboxes) == 0 {
		return nil
	}
	return &o.sandboxes[0]
}

// latest returns the newest container with the name, nil if there is none.
func (o *observed) latest(name string) *container {
	for _, c := range o.containers {
		if c.name == name {
			return c
		}
	}
	return nil
}

// latestIn is latest for one sandbox.
func (o *observed) latestIn(sandboxID, name string) *container {
	for _, c := range o.containers {
		if c.name == name && c.sandboxID == sandboxID {
			return c
		}
	}
	return nil
}

// previous returns the newest other container with the name of c that has exited;
// nil if there is none.
func (o *observed) previous(c *container) *container {
	for _, p := range o.containers {
		if p.name == c.name && p != c && p.exited() && p.attempt <= c.attempt {
			return p
		}
	}
	return nil
}

func (o *observed) byID(id string) *container {
	for _, c := range o.containers {
		if c.id == id {
			return c
		}
	}
	return nil
}

// active returns the containers that run or may be running.
func (o *observed) active() []*container {
	var out []*container
	for _, c := range o.containers {
		if !c.exited() && c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
			out = append(out, c)
		}
	}
	return out
}

func (o *observed) empty() bool { return len(o.sandboxes) == 0 && len(o.containers) == 0 }

func (o *observed) sort() {
	slices.SortFunc(o.sandboxes, func(a, b sandbox) int {
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(b.attempt, a.attempt))
	})
	slices.SortFunc(o.containers, func(a, b *container) int {
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(b.attempt, a.attempt))
	})
}

// reader reads pods from the runtime.
type reader struct {
	runtime cri.Runtime
}

// read returns the current state, given the previous state o. It does not read
// statuses again that cannot change (of exited containers) or did not change.
func (r reader) read(ctx context.Context, uid types.UID, o observed) (observed, error) {
	labels := map[string]string{cri.LabelPodUID: string(uid)}
	boxes, err := r.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		return o, err
	}
	list, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
	if err != nil {
		return o, err
	}
	var now observed
	for _, item := range boxes.Items {
		s, err := r.sandbox(ctx, item, o)
		if err != nil && !cri.NotFound(err) {
			return o, err
		}
		now.sandboxes = append(now.sandboxes, s)
	}
	for _, item := range list.Containers {
		c, err := r.container(ctx, item, o)
		if cri.NotFound(err) {
			continue // removed since it was listed
		}
		if err != nil {
			return o, err
		}
		now.containers = append(now.containers, c)
	}
	now.sort()
	return now, nil
}

// sandbox returns the state of a listed sandbox. It reads the addresses of a ready
// sandbox unless old has them.
func (r reader) sandbox(ctx context.Context, item *runtimeapi.PodSandbox, old observed) (sandbox, error) {
	s := sandbox{
		id: item.Id, attempt: item.Metadata.GetAttempt(), created: time.Unix(0, item.CreatedAt),
		ready: item.State == runtimeapi.PodSandboxState_SANDBOX_READY,
	}
	for _, known := range old.sandboxes {
		if known.id == s.id && known.ready == s.ready && len(known.ips) > 0 {
			return known, nil
		}
	}
	if !s.ready {
		return s, nil
	}
	ips, err := r.ips(ctx, s.id)
	s.ips = ips
	return s, err
}

// ips returns the sandbox's addresses; nil on the host's network.
func (r reader) ips(ctx context.Context, id string) ([]string, error) {
	res, err := r.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, err
	}
	network := res.Status.GetNetwork()
	if network.GetIp() == "" {
		return nil, nil
	}
	ips := []string{network.Ip}
	for _, more := range network.AdditionalIps {
		ips = append(ips, more.Ip)
	}
	return ips, nil
}

func (r reader) container(ctx context.Context, item *runtimeapi.Container, old observed) (*container, error) {
	if known := old.byID(item.Id); known != nil && known.statusRead && known.state == item.State {
		return known, nil
	}
	c, err := r.status(ctx, item.Id)
	if err != nil {
		return nil, err
	}
	c.sandboxID = item.PodSandboxId
	return c, nil
}

// status reads one container. It does not set sandboxID.
func (r reader) status(ctx context.Context, id string) (*container, error) {
	res, err := r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil, err
	}
	s := res.Status
	c := &container{
		id: s.Id, name: s.Labels[cri.LabelContainerName], state: s.State, attempt: int32(s.Metadata.GetAttempt()),
		created: nanoTime(s.CreatedAt), started: nanoTime(s.StartedAt), finished: nanoTime(s.FinishedAt),
		exitCode: s.ExitCode, reason: s.Reason, message: s.Message,
		image: s.GetImage().GetImage(), imageRef: s.ImageRef, annotations: s.Annotations,
		user: s.User, resources: s.GetResources().GetLinux(), recursive: recursiveMounts(s.Mounts), stopSignal: cri.SignalName(s.StopSignal),
		statusRead: true,
	}
	if n, err := strconv.ParseInt(s.Annotations[cri.AnnotationRestartCount], 10, 32); err == nil {
		c.attempt = int32(n)
	}
	if c.name == "" {
		c.name = s.Metadata.GetName()
	}
	if c.exited() {
		c.terminationMessage = terminationMessage(s)
	}
	if c.killedJustNow(time.Now()) {
		c.statusRead = false
	}
	return c, nil
}

// unsettled reports whether the reason of a container's exit may still change.
func (o *observed) unsettled() bool {
	return slices.ContainsFunc(o.containers, func(c *container) bool { return !c.statusRead })
}

// oomNews is how long after a container's exit the runtime may still learn that the
// OOM killer caused it: containerd receives the two events separately.
const oomNews = 2 * time.Second

// killedJustNow reports whether SIGKILL ended c so recently that its reason may
// still change.
func (c *container) killedJustNow(now time.Time) bool {
	return c.exited() && c.exitCode == 137 && c.reason == "Error" && now.Sub(c.finished) < oomNews
}

func nanoTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
