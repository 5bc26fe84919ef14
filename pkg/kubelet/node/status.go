package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/cri"
)

// health is the status that the runtime reports.
type health struct {
	problems []string // why the node is not ready; empty: it is ready
	status   *runtimeapi.StatusResponse
}

// answerWithin is how long a call of the runtime may take until the runtime counts as down.
const answerWithin = 30 * time.Second

// look reads the runtime's status. The messages are upstream's.
func look(ctx context.Context, r cri.Runtime) health {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	res, err := r.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return health{problems: []string{"container runtime is down"}}
	}
	h := health{status: res}
	for _, want := range []struct{ condition, text string }{
		{cri.ConditionRuntimeReady, "container runtime not ready: %s"},
		{cri.ConditionNetworkReady, "container runtime network not ready: %s"},
	} {
		c := conditionOf(res, want.condition)
		if c == nil {
			h.problems = append(h.problems, fmt.Sprintf(want.text, want.condition+"=false reason: message:condition not set by the runtime"))
		} else if !c.Status {
			h.problems = append(h.problems, fmt.Sprintf(want.text, fmt.Sprintf("%s=false reason:%s message:%s", c.Type, c.Reason, c.Message)))
		}
	}
	return h
}

func conditionOf(res *runtimeapi.StatusResponse, t string) *runtimeapi.RuntimeCondition {
	for _, c := range res.GetStatus().GetConditions() {
		if c.Type == t {
			return c
		}
	}
	return nil
}

// fill sets the node's current status. It keeps conditions of other types.
func (a *Agent) fill(ctx context.Context, n *corev1.Node, now time.Time) {
	s := &n.Status
	s.Addresses = a.cfg.Cloud.addresses(s.Addresses, a.cfg.Addresses)
	s.DaemonEndpoints = corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: a.cfg.Port}}
	boot := s.NodeInfo.BootID
	s.NodeInfo = a.cfg.Info
	if boot != "" && a.cfg.Info.BootID != "" && boot != a.cfg.Info.BootID {
		a.cfg.Events.Event(n, corev1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", a.cfg.Name, a.cfg.Info.BootID))
	}
	a.fillResources(s)
	if a.cfg.InUse != nil {
		s.VolumesInUse = a.cfg.InUse()
	}
	if res := a.runtime.status; res != nil {
		s.RuntimeHandlers, s.Features = handlers(res), features(res)
		if images, err := a.images(ctx); err == nil {
			s.Images = images
		}
	}
	p := Pressure{}
	if a.cfg.Pressure != nil {
		p = a.cfg.Pressure()
	}
	for _, c := range []corev1.NodeCondition{
		pressure(corev1.NodeMemoryPressure, p.Memory, "KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		a.disk(n, p),
		pressure(corev1.NodePIDPressure, p.PIDs, "KubeletHasInsufficientPID", "kubelet has insufficient PID available", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		a.ready(),
	} {
		setCondition(s, c, now)
	}
}

// fillResources sets capacity and allocatable. It keeps resources that other
// components advertise on the node.
func (a *Agent) fillResources(s *corev1.NodeStatus) {
	if s.Capacity == nil {
		s.Capacity = corev1.ResourceList{}
	}
	if s.Allocatable == nil {
		s.Allocatable = corev1.ResourceList{}
	}
	capacity := a.cfg.Capacity()
	maps.Copy(s.Capacity, capacity)
	maps.Copy(s.Allocatable, Allocatable(capacity, a.cfg.Reserved))
	if a.cfg.Devices != nil {
		capacity, allocatable := a.cfg.Devices()
		maps.Copy(s.Capacity, capacity)
		maps.Copy(s.Allocatable, allocatable)
	}
	for name, q := range s.Capacity { // extended resources are allocatable completely
		if _, has := s.Allocatable[name]; !has {
			s.Allocatable[name] = q.DeepCopy()
		}
	}
}

// Allocatable returns capacity minus reserved, at least 0 for each resource. The kernel has set the
// memory of huge pages aside: nothing else can use it.
func Allocatable(capacity, reserved corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range capacity {
		out[name] = less(q, reserved[name])
	}
	for name, q := range capacity {
		if memory, has := out[corev1.ResourceMemory]; has && strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			out[corev1.ResourceMemory] = less(memory, q)
		}
	}
	return out
}

func less(q, reserved resource.Quantity) resource.Quantity {
	left := q.DeepCopy()
	left.Sub(reserved)
	if left.Sign() < 0 {
		left.Set(0)
	}
	return left
}

// images returns the largest images on the node, at most MaxImages.
func (a *Agent) images(ctx context.Context) ([]corev1.ContainerImage, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	res, err := a.cfg.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(res.Images, func(x, y *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(y.Size, x.Size), cmp.Compare(x.Id, y.Id))
	})
	const maxNames = 5
	var out []corev1.ContainerImage
	for _, image := range res.Images[:min(len(res.Images), a.cfg.MaxImages)] {
		names := slices.Concat(image.RepoDigests, image.RepoTags)
		out = append(out, corev1.ContainerImage{Names: names[:min(len(names), maxNames)], SizeBytes: int64(image.Size)})
	}
	return out, nil
}

func handlers(res *runtimeapi.StatusResponse) []corev1.NodeRuntimeHandler {
	var out []corev1.NodeRuntimeHandler
	for _, h := range res.RuntimeHandlers {
		f := h.GetFeatures()
		recursive, users := f.GetRecursiveReadOnlyMounts(), f.GetUserNamespaces()
		out = append(out, corev1.NodeRuntimeHandler{Name: h.Name, Features: &corev1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: &recursive, UserNamespaces: &users,
		}})
	}
	return out
}

func features(res *runtimeapi.StatusResponse) *corev1.NodeFeatures {
	if res.Features == nil {
		return nil
	}
	groups := res.Features.SupplementalGroupsPolicy
	return &corev1.NodeFeatures{SupplementalGroupsPolicy: &groups}
}

func pressure(t corev1.NodeConditionType, is bool, bad, badText, good, goodText string) corev1.NodeCondition {
	if is {
		return corev1.NodeCondition{Type: t, Status: corev1.ConditionTrue, Reason: bad, Message: badText}
	}
	return corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: good, Message: goodText}
}

// disk returns the condition DiskPressure. A read-only directory of the kubelet counts as a
// full one: its taint keeps new pods away, which could not start, and those that run stay.
func (a *Agent) disk(n *corev1.Node, p Pressure) corev1.NodeCondition {
	c := pressure(corev1.NodeDiskPressure, p.Disk || p.ReadOnly != "", "KubeletHasDiskPressure", "kubelet has disk pressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
	if p.ReadOnly != "" {
		c.Message = fmt.Sprintf("the file system of %s is read-only", p.ReadOnly)
	}
	if p.ReadOnly != "" && a.readOnly == "" {
		a.cfg.Events.Event(n, corev1.EventTypeWarning, "FilesystemIsReadOnly", c.Message) // the reason of node-problem-detector
	}
	a.readOnly = p.ReadOnly
	return c
}

func (a *Agent) ready() corev1.NodeCondition {
	problems := a.runtime.problems
	if a.cfg.Stopping != nil && a.cfg.Stopping() {
		problems = append(slices.Clone(problems), "node is shutting down")
	}
	if len(problems) == 0 {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	}
	message := problems[0]
	if len(problems) > 1 {
		message = "[" + strings.Join(problems, ", ") + "]"
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: message}
}

// setCondition sets a condition as of now.
func setCondition(s *corev1.NodeStatus, c corev1.NodeCondition, now time.Time) {
	at := metav1.NewTime(now.Truncate(time.Second))
	c.LastHeartbeatTime, c.LastTransitionTime = at, at
	s.Conditions = conditions.Set(s.Conditions, c)
}
