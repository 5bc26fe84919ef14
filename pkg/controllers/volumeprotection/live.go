package volumeprotection

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"podium/pkg/client"
)

// forgotten is the age at which the list of a namespace is not kept for further claims.
const forgotten = time.Minute

// livePods reads from the API which pods use the claims of a namespace. One list answers for
// all claims that were deleted before it: a pod that is bound to a node later does not use
// them. It is not safe for concurrent use.
type livePods struct {
	list  func(ctx context.Context, namespace string) (*client.List[*corev1.Pod], error)
	get   func(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	lists map[string]listed // by namespace
}

// listed is what a list of the pods of a namespace showed.
type listed struct {
	revision string
	at       time.Time
	users    map[string][]*corev1.Pod // by the name of a claim
}

func newLivePods(pods client.Resource[*corev1.Pod]) *livePods {
	return &livePods{
		list: func(ctx context.Context, namespace string) (*client.List[*corev1.Pod], error) {
			return pods.In(namespace).List(ctx, metav1.ListOptions{})
		},
		get: func(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
			return pods.In(namespace).Get(ctx, name)
		},
		lists: map[string]listed{},
	}
}

// use reports whether a pod uses a claim that is being deleted.
func (l *livePods) use(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	pods, err := l.since(ctx, claim)
	if err != nil {
		return false, err
	}
	for _, pod := range pods.users[claim.Name] {
		if !uses(pod, claim) {
			continue
		}
		now, err := l.get(ctx, pod.Namespace, pod.Name) // the list may be old
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil || uses(now, claim) {
			return err == nil, err
		}
	}
	return false, nil
}

// since returns a list of the pods of a claim's namespace that is not older than the claim.
func (l *livePods) since(ctx context.Context, claim *corev1.PersistentVolumeClaim) (listed, error) {
	if have, ok := l.lists[claim.Namespace]; ok {
		if order, err := resourceversion.CompareResourceVersion(have.revision, claim.ResourceVersion); err == nil && order >= 0 {
			return have, nil
		}
	}
	pods, err := l.list(ctx, claim.Namespace)
	if err != nil {
		return listed{}, err
	}
	now := listed{revision: pods.ResourceVersion, at: time.Now(), users: map[string][]*corev1.Pod{}}
	for _, pod := range pods.Items {
		for _, name := range claimsOf(pod) {
			now.users[name] = append(now.users[name], pod)
		}
	}
	for namespace, old := range l.lists {
		if time.Since(old.at) > forgotten {
			delete(l.lists, namespace)
		}
	}
	l.lists[claim.Namespace] = now
	return now, nil
}
