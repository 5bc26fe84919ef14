package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/scheme"
)

func TestFinalizers(t *testing.T) {
	kinds := newRig(t, "10.0.0.0/24", somePorts).kinds
	const why = "name is neither a standard finalizer name nor is it fully qualified"
	for name, row := range map[string]struct {
		reason   string
		resource string
		old, new []string
		update   bool
		want     []string
	}{
		"None":       {reason: "as most objects", resource: "configmaps"},
		"Standard":   {reason: "the names that Kubernetes itself uses", resource: "configmaps", new: []string{"kubernetes", "orphan", "foregroundDeletion"}},
		"Qualified":  {reason: "the name of another program", resource: "serviceaccounts", new: []string{"example.com/hold"}},
		"Create":     {reason: "nothing says which program removes it", resource: "configmaps", new: []string{"example.com/hold", "hold"}, want: []string{`metadata.finalizers[1]: Invalid value: "hold": ` + why}},
		"NoRules":    {reason: "also of a kind without rules of its own", resource: "serviceaccounts", new: []string{"hold"}, want: []string{`metadata.finalizers[0]: Invalid value: "hold": ` + why}},
		"OtherGroup": {reason: "and of groups other than core", resource: "endpointslices", new: []string{"hold"}, want: []string{`metadata.finalizers[0]: Invalid value: "hold": ` + why}},
		"Lease":      {reason: "upstream checks these less", resource: "leases", new: []string{"hold"}},
		"Update":     {reason: "nor can it be added", resource: "configmaps", update: true, new: []string{"hold"}, want: []string{`metadata.finalizers[0]: Invalid value: "hold": ` + why}},
		"Kept":       {reason: "what is stored must not keep others from writing", resource: "configmaps", update: true, old: []string{"hold"}, new: []string{"hold", "example.com/hold"}},
	} {
		obj := kinds[row.resource].New()
		obj.SetFinalizers(row.new)
		var before scheme.Object
		if row.update {
			before = kinds[row.resource].New()
			before.SetFinalizers(row.old)
		}
		var got []string
		if validate := kinds[row.resource].Validate; validate != nil {
			for _, text := range texts(validate(obj, before)) {
				if strings.HasPrefix(text, "metadata.") {
					got = append(got, text)
				}
			}
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: %s\n%s", name, row.reason, diff)
		}
	}
}

// A status update carries metadata too.
func TestFinalizersOfAStatus(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
	old := newPod(nil)
	next := old.DeepCopy()
	next.Finalizers = []string{"hold"}
	want := []string{`metadata.finalizers[0]: Invalid value: "hold": name is neither a standard finalizer name nor is it fully qualified`}
	if diff := cmp.Diff(want, texts(subresource(t, k, "status").ValidatePart(next, old))); diff != "" {
		t.Error(diff)
	}
}
