package crd

import (
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/conditions"
	"podium/pkg/scheme"
)

// named returns a definition that was created at a second and wants names.
func named(at int64, plural, kind string, short ...string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com", CreationTimestamp: metav1.Unix(at, 0)},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{
			Plural: plural, Singular: plural + "-one", Kind: kind, ListKind: kind + "List", ShortNames: short,
		}},
	}
}

// established returns c with its names accepted.
func established(c *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	c.Status = decide([]*apiextensionsv1.CustomResourceDefinition{c}, nil, metav1.Unix(0, 0))[0]
	return c
}

func TestDecideNames(t *testing.T) {
	type list = []*apiextensionsv1.CustomResourceDefinition
	builtIn := []*scheme.Kind{{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Native"}, Resource: "natives", Singular: "native"}}
	for name, c := range map[string]struct {
		reason string
		all    list
		want   string // NamesAccepted's reason and Established of each
	}{
		"alone":       {"free names are accepted", list{named(1, "a", "A")}, "[NoConflicts True]"},
		"oldest wins": {"the order of the list does not matter", list{named(2, "b", "A"), named(1, "a", "A")}, "[ListKindConflict False NoConflicts True]"},
		"name decides": {"of two of the same second, every server prefers the same",
			list{named(1, "b", "A"), named(1, "a", "A")}, "[ListKindConflict False NoConflicts True]"},
		"holder keeps": {"an older definition does not take a name that is in use", list{established(named(2, "b", "A")), named(1, "a", "A")}, "[NoConflicts True ListKindConflict False]"},
		"short name":   {"", list{named(1, "a", "A", "x"), named(2, "b", "B", "x", "y")}, "[NoConflicts True ShortNamesConflict False]"},
		"plural as short name": {"plural, singular and short names share a space", list{named(1, "a", "A"), named(2, "b", "B", "a")},
			"[NoConflicts True ShortNamesConflict False]"},
		"built in": {"a kind of the server keeps its names", list{named(1, "natives", "Other")}, "[PluralConflict False]"},
	} {
		var got []any
		for _, status := range decide(c.all, builtIn, metav1.Unix(9, 0)) {
			got = append(got, conditions.Find(status.Conditions, apiextensionsv1.NamesAccepted).Reason, conditions.Status(status.Conditions, apiextensionsv1.Established))
		}
		if text := fmt.Sprint(got); text != c.want {
			t.Errorf("%s (%s): %s, want %s", name, c.reason, text, c.want)
		}
	}
}

// An established definition that asks for a name in use stays established, and keeps
// the names that it has.
func TestConflictLaterKeepsTheNames(t *testing.T) {
	holder, changed := established(named(1, "a", "A", "x")), established(named(2, "b", "B"))
	changed.Spec.Names.ShortNames = []string{"x"}
	status := decide([]*apiextensionsv1.CustomResourceDefinition{holder, changed}, nil, metav1.Unix(9, 0))[1]
	if !conditions.IsTrue(status.Conditions, apiextensionsv1.Established) || conditions.IsTrue(status.Conditions, apiextensionsv1.NamesAccepted) ||
		status.AcceptedNames.Plural != "b" || len(status.AcceptedNames.ShortNames) != 0 {
		t.Errorf("status %+v", status)
	}
}
