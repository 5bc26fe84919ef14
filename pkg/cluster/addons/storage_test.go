package addons

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
)

// The class is created once. What administrators do with it afterwards is not undone, and
// another default class stays the only one.
func TestStorageClassIsCreatedOnce(t *testing.T) {
	class := func(name, isDefault string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{defaultClass: isDefault}}, Provisioner: "other"}
	}
	for name, tc := range map[string]struct {
		reason string
		other  *storagev1.StorageClass
		old    bool // the cluster existed before the class did
		change func(*storagev1.StorageClass)
		remove bool
		want   string // the default mark in the end; "gone"
	}{
		"New":       {reason: "claims of a new cluster have a class", want: "true"},
		"Upgrade":   {reason: "claims without a class may count on volumes without one", old: true, want: ""},
		"Other":     {reason: "there is one default", other: class("fast", "true"), want: ""},
		"NoDefault": {reason: "the other class is not the default", other: class("fast", "false"), want: "true"},
		"Own":       {reason: "an administrator's class of that name stays", other: class("local-path", "false"), want: "false"},
		"Unmarked":  {reason: "the mark does not come back", change: func(c *storagev1.StorageClass) { c.Annotations[defaultClass] = "false" }, want: "false"},
		"Removed":   {reason: "the class does not come back", remove: true, want: "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, c := t.Context(), clienttest.New().Client(t)
			classes := client.For[*storagev1.StorageClass](c)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			_, err := client.For[*corev1.Namespace](c).Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
			must(err)
			if tc.other != nil {
				_, err := classes.Create(ctx, tc.other)
				must(err)
			}
			must(CreateStorageClass(ctx, c, !tc.old))
			if tc.remove {
				must(classes.Delete(ctx, "local-path", metav1.DeleteOptions{}))
			}
			if tc.change != nil {
				got, err := classes.Get(ctx, "local-path")
				must(err)
				tc.change(got)
				_, err = classes.Update(ctx, got)
				must(err)
			}
			must(CreateStorageClass(ctx, c, true)) // the next start
			got, err := classes.Get(ctx, "local-path")
			switch {
			case tc.want == "gone" && apierrors.IsNotFound(err):
			case err != nil:
				t.Fatal(err)
			case got.Annotations[defaultClass] != tc.want:
				t.Errorf("%s: the default mark is %q, want %q", tc.reason, got.Annotations[defaultClass], tc.want)
			}
		})
	}
}
