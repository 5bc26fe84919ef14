// Package podcontrol creates and deletes the pods of a workload, for the controllers of
// ReplicaSets, StatefulSets, DaemonSets and Jobs.
package podcontrol

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

	"podium/pkg/backoff"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
	"podium/pkg/scheme"
)

// resends is how often the creation of a pod is sent again after its response was lost.
const resends = 4

// Control creates, deletes, adopts and releases the pods of owners of type O, and records
// events about the owners. An owner's key is not reconciled again until the pod informer
// shows the changes, so that no pod is created twice.
type Control[O scheme.Object] struct {
	ownership.Adopter[O, *corev1.Pod]
	controller.Context
	kind   schema.GroupVersionKind
	writer controller.Writer[*corev1.Pod]
	open   *unanswered
}

// New returns the pod control of the controller that l belongs to.
func New[O scheme.Object](c controller.Context, l *loop.Loop) Control[O] {
	w := controller.NewWriter(c, l, informers.For[*corev1.Pod](c.Informers))
	return Control[O]{
		Adopter: ownership.NewAdopter[O](c, w), Context: c,
		kind: scheme.KindOf[O](c.Client.Scheme()).GroupVersionKind, writer: w,
		open: &unanswered{names: map[loop.Key][]string{}},
	}
}

// Create creates n copies of pod, as CreateEach does.
func (c Control[O]) Create(ctx context.Context, owner O, pod *corev1.Pod, n int) error {
	_, err := c.CreateEach(ctx, owner, n, func(int) *corev1.Pod { return pod.DeepCopy() })
	return err
}

// CreateEach creates n pods: one, then two, then four at a time, so that a template that
// the API refuses costs few requests. It returns the number of pods created, and no error
// if the namespace is terminating: the owner will be deleted, too. If a pod of a name exists
// already, the cache is stale; this is an error without an event. As long as it is unknown
// whether pods of the owner exist, only their creation is tried again, not that of others.
func (c Control[O]) CreateEach(ctx context.Context, owner O, n int, pod func(i int) *corev1.Pod) (created int, err error) {
	var count atomic.Int32
	key := loop.KeyOf(owner)
	names := c.open.take(key)
	if len(names) > 0 {
		n = min(n, len(names))
	}
	tried := make([]bool, n)
	err = loop.SlowStart(ctx, n, func(ctx context.Context, i int) error {
		want := pod(i)
		if want.Name == "" && i < len(names) {
			want.Name = names[i]
		}
		tried[i] = true
		fresh := want.Name == ""
		generated := name(want)
		got, err := c.create(ctx, owner, want, fresh)
		if generated && unknown(err) {
			c.open.add(key, want.Name)
		}
		switch {
		case err == nil:
			count.Add(1)
			c.Events.Event(owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+got.Name)
		case want.Name != "" && apierrors.IsAlreadyExists(err):
		case !controller.NamespaceTerminating(err):
			c.Events.Event(owner, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+err.Error())
		}
		return err
	})
	for i, name := range names {
		if i >= n || !tried[i] {
			c.open.add(key, name)
		}
	}
	if controller.NamespaceTerminating(err) {
		err = nil
	}
	return int(count.Load()), err
}

// name names a pod that has only a generateName, as the API would. A name lets create find out
// whether a pod whose creation was not answered exists: the API would give the pod of each
// request another name. name reports whether it was generated.
func name(pod *corev1.Pod) bool {
	const most, suffix = 63, 5
	if pod.Name == "" {
		pod.Name = pod.GenerateName[:min(len(pod.GenerateName), most-suffix)] + rand.String(suffix)
	}
	return pod.GenerateName != ""
}

// unanswered holds, for each owner, the generated names of pods that may exist: the API has not
// answered any request to create them, because no server ran. Those of an owner that is deleted
// meanwhile stay; they are few. It is safe for concurrent use.
type unanswered struct {
	mu    sync.Mutex
	names map[loop.Key][]string
}

func (u *unanswered) add(owner loop.Key, names ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(names) > 0 {
		u.names[owner] = append(u.names[owner], names...)
	}
}

// take returns the names and forgets them.
func (u *unanswered) take(owner loop.Key) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	names := u.names[owner]
	delete(u.names, owner)
	return names
}

// renames is how many other names a pod gets if another pod has its generated one, as
// upstream's API server does.
const renames = 7

// create creates a pod. fresh means that its name was generated just now: if a pod of that
// name exists, it is another one. If the response is lost, it sends the request again, a few
// times, until the API says whether the pod exists. The informer cannot say so: it may first
// show that an older pod is gone and its name free.
func (c Control[O]) create(ctx context.Context, owner O, want *corev1.Pod, fresh bool) (*corev1.Pod, error) {
	key := loop.KeyOf(owner)
	got, err := c.writer.Create(ctx, key, want)
	for i := 0; i < renames && fresh && apierrors.IsAlreadyExists(err); i++ {
		want.Name = ""
		name(want)
		got, err = c.writer.Create(ctx, key, want)
	}
	retry := backoff.Backoff{Initial: 50 * time.Millisecond}
	for i := 0; i < resends && want.Name != "" && unknown(err); i++ {
		if err := retry.Wait(ctx); err != nil {
			return nil, err
		}
		got, err = c.writer.Create(ctx, key, want)
	}
	if want.Name != "" && apierrors.IsAlreadyExists(err) {
		c.writer.Exists(key, want.Namespace, want.Name)
	}
	return got, err
}

// unknown reports whether err leaves open what the API has done.
func unknown(err error) bool {
	return err != nil && (apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsTimeout(err))
}

// Delete deletes the pods, some at a time. It ignores pods that no longer exist or have
// been replaced by another pod of the same name.
func (c Control[O]) Delete(ctx context.Context, owner O, pods []*corev1.Pod) error {
	return loop.Parallel(ctx, len(pods), func(ctx context.Context, i int) error {
		deleted, err := c.writer.Delete(ctx, loop.KeyOf(owner), pods[i], metav1.DeleteOptions{})
		if err != nil {
			c.Events.Event(owner, corev1.EventTypeWarning, "FailedDelete", "Error deleting: "+err.Error())
		}
		if deleted {
			c.Events.Event(owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+pods[i].Name)
		}
		return err
	})
}

// FromTemplate returns a new pod of owner, with generateName set.
func (c Control[O]) FromTemplate(owner O, template *corev1.PodTemplateSpec) *corev1.Pod {
	t := template.DeepCopy()
	prefix := owner.GetName() + "-"
	if len(validation.NameIsDNSSubdomain(prefix, true)) > 0 {
		prefix = owner.GetName()
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: prefix, Namespace: owner.GetNamespace(),
			Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(owner, c.kind)},
		},
		Spec: t.Spec,
	}
}
