package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/backoff"
	"podium/pkg/cli/rest"
)

// annotationDefaultContainer is the annotation with the name of a pod's default
// container.
const annotationDefaultContainer = "kubectl.kubernetes.io/default-container"

// findPods returns the pods of "NAME" or "TYPE/NAME": the pod itself, or those
// that a Service, Deployment, ReplicaSet or other object selects, in the order
// of listPods.
func findPods(ctx context.Context, f *Factory, c *rest.Cluster, arg string) ([]corev1.Pod, error) {
	namespace, _, err := f.Namespace()
	if err != nil {
		return nil, err
	}
	word, name, typed := strings.Cut(arg, "/")
	if !typed {
		word, name = "pods", arg
	}
	k, err := c.Find(ctx, word)
	if err != nil {
		return nil, err
	}
	obj, err := c.Get(ctx, k, scope(k, namespace), name)
	if err != nil {
		return nil, err
	}
	return findPodsOf(ctx, c, target{Kind: k, Name: name, Object: obj})
}

// awaitPods is findPods for an object that may have no pods yet. It waits for at most
// patience.
func awaitPods(ctx context.Context, f *Factory, c *rest.Cluster, arg string, patience time.Duration) ([]corev1.Pod, error) {
	for end := time.Now().Add(patience); ; {
		pods, err := findPods(ctx, f, c, arg)
		if !errors.Is(err, errNoPods) || time.Now().After(end) {
			return pods, err
		}
		if err := backoff.Sleep(ctx, lookPeriod); err != nil {
			return nil, err
		}
	}
}

// patienceFlag declares --pod-running-timeout.
func patienceFlag(cmd *cobra.Command, into *time.Duration, value time.Duration) {
	cmd.Flags().DurationVar(into, "pod-running-timeout", value, "length of time to wait until at least one pod is running")
}

var errNoPods = errors.New("it has no pods now")

// findPodsOf is findPods for an object that was read.
func findPodsOf(ctx context.Context, c *rest.Cluster, t target) ([]corev1.Pod, error) {
	k, obj := t.Kind, t.Object
	if k.Group == "" && k.Kind == "Pod" {
		pod, err := toPod(obj)
		return []corev1.Pod{pod}, err
	}
	selector, err := selectorOf(obj)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	pods, err := c.Find(ctx, "pods")
	if err != nil {
		return nil, err
	}
	found, err := listPods(ctx, c, pods, obj.GetNamespace(), selector)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: %w", t, errNoPods)
	}
	return found, err
}

// selectorOf returns an object's pod selector.
func selectorOf(obj *rest.Object) (string, error) {
	if m, ok, _ := unstructured.NestedStringMap(obj.Object, "spec", "selector"); ok && len(m) > 0 {
		return labels.SelectorFromSet(m).String(), nil
	}
	raw, ok, _ := unstructured.NestedMap(obj.Object, "spec", "selector")
	if !ok {
		return "", errors.New("it selects no pods")
	}
	var ls metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &ls); err != nil {
		return "", err
	}
	s, err := metav1.LabelSelectorAsSelector(&ls)
	if err != nil {
		return "", err
	}
	if s.Empty() {
		return "", errors.New("it selects no pods")
	}
	return s.String(), nil
}

// listPods returns the selected pods: running and ready ones first, then older
// ones first.
func listPods(ctx context.Context, c *rest.Cluster, pods *rest.Kind, namespace, selector string) ([]corev1.Pod, error) {
	list, err := c.List(ctx, pods, namespace, map[string][]string{"labelSelector": {selector}})
	if err != nil {
		return nil, err
	}
	var out []corev1.Pod
	for i := range list.Items {
		pod, err := toPod(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, pod)
	}
	slices.SortStableFunc(out, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(podRank(&a), podRank(&b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return out, nil
}

func podRank(p *corev1.Pod) int {
	ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	switch {
	case p.DeletionTimestamp != nil:
		return 3
	case ready:
		return 0
	case p.Status.Phase == corev1.PodRunning:
		return 1
	}
	return 2
}

func toPod(obj *rest.Object) (corev1.Pod, error) {
	var pod corev1.Pod
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &pod)
	return pod, err
}

// containersOf returns the names of a pod's containers, after those of its init
// containers if withInit is set.
func containersOf(pod *corev1.Pod, withInit bool) []string {
	var out []string
	if withInit {
		for _, c := range pod.Spec.InitContainers {
			out = append(out, c.Name)
		}
	}
	for _, c := range pod.Spec.Containers {
		out = append(out, c.Name)
	}
	if withInit {
		for _, c := range pod.Spec.EphemeralContainers {
			out = append(out, c.Name)
		}
	}
	return out
}

// chooseContainer returns the container asked or, if asked is "", the one in
// the annotation, else the first. It calls note if it takes the first of
// several.
func chooseContainer(pod *corev1.Pod, asked string, note func(string)) (string, error) {
	if asked != "" {
		if !slices.Contains(containersOf(pod, true), asked) {
			return "", fmt.Errorf("container %s is not valid for pod %s: it has %s", asked, pod.Name, strings.Join(containersOf(pod, true), ", "))
		}
		return asked, nil
	}
	if name := pod.Annotations[annotationDefaultContainer]; name != "" && slices.Contains(containersOf(pod, true), name) {
		return name, nil
	}
	names := containersOf(pod, false)
	if len(names) == 0 {
		return "", fmt.Errorf("pod %s has no containers", pod.Name)
	}
	if len(names) > 1 {
		note(fmt.Sprintf("Defaulted container %q out of: %s", names[0], strings.Join(containersOf(pod, true), ", ")))
	}
	return names[0], nil
}
