package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// chunked is the number of PodTemplates of the rows about chunks.
const chunked = 400

// expiry is longer than the API server keeps the history of its store: at most two
// intervals of five minutes, the default. hack/with-cluster sets a shorter interval.
const expiry = 11 * time.Minute

func manyTemplates(t *testing.T, ctx context.Context, namespace string) {
	t.Helper()
	for i := range chunked {
		_, err := admin.CoreV1().PodTemplates(namespace).Create(ctx, podTemplate(fmt.Sprintf("template-%04d", i), nil), metav1.CreateOptions{})
		check(t, err)
	}
}

func podTemplate(name string, labels map[string]string) *corev1.PodTemplate {
	return &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Template:   corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "test", Image: "test2"}}}},
	}
}

// pages reads a list to its end from opts.Continue on, and wants the templates from
// index first on, in order, all of one version, with the exact number that remains. It
// returns the version.
func pages(t *testing.T, ctx context.Context, namespace string, opts metav1.ListOptions, first int) (version string) {
	t.Helper()
	for seen := first; ; {
		list, err := admin.CoreV1().PodTemplates(namespace).List(ctx, opts)
		check(t, err)
		if len(list.Items) > int(opts.Limit) {
			t.Errorf("a page has %d items, the limit is %d", len(list.Items), opts.Limit)
		}
		for _, item := range list.Items {
			if want := fmt.Sprintf("template-%04d", seen); item.Name != want {
				t.Fatalf("item %d is %s", seen, item.Name)
			}
			seen++
		}
		if version == "" {
			version = list.ResourceVersion
		}
		if list.ResourceVersion != version {
			t.Errorf("a page is of version %s, the first of %s", list.ResourceVersion, version)
		}
		remaining := list.RemainingItemCount
		if list.Continue == "" {
			if remaining != nil || seen != chunked {
				t.Errorf("the last page ends after %d items and says that %v remain", seen, remaining)
			}
			return version
		}
		if remaining == nil || int(*remaining) != chunked-seen {
			t.Errorf("%v items remain after %d", remaining, seen)
		}
		if len(list.Items) == 0 {
			t.Fatal("a page has no items and is not the last")
		}
		opts.Continue = list.Continue
	}
}

func listChunks(t *testing.T, ctx context.Context, namespace string) {
	manyTemplates(t, ctx, namespace)
	pages(t, ctx, namespace, metav1.ListOptions{Limit: 17}, 0)
	list, err := admin.CoreV1().PodTemplates(namespace).List(ctx, metav1.ListOptions{Limit: chunked + 1})
	check(t, err)
	if len(list.Items) != chunked || list.Continue != "" || list.RemainingItemCount != nil {
		t.Errorf("with a larger limit the list has %d items and continues at %q", len(list.Items), list.Continue)
	}
}

// expiredContinue waits until the version of a continue token is compacted.
func expiredContinue(t *testing.T, ctx context.Context, namespace string) {
	manyTemplates(t, ctx, namespace)
	const limit = 40
	templates := admin.CoreV1().PodTemplates(namespace)
	list, err := templates.List(ctx, metav1.ListOptions{Limit: limit})
	check(t, err)
	if list.Continue == "" || list.RemainingItemCount == nil || *list.RemainingItemCount != chunked-limit {
		t.Fatalf("the first page continues at %q, %v items remain", list.Continue, list.RemainingItemCount)
	}
	first := list.ResourceVersion
	token := ""
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for token == "" {
		_, err := templates.List(ctx, metav1.ListOptions{Limit: limit, Continue: list.Continue})
		var status apierrors.APIStatus
		switch {
		case apierrors.IsResourceExpired(err) && errors.As(err, &status):
			if token = status.Status().ListMeta.Continue; token == "" {
				t.Fatalf("the error has no token to continue with: %v", err)
			}
			continue
		case err != nil:
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
			t.Fatal("the token has not expired")
		case <-tick.C:
		}
	}
	if version := pages(t, ctx, namespace, metav1.ListOptions{Limit: limit, Continue: token}, limit); version == first {
		t.Errorf("the list continues at the expired version %s", version)
	}
}
