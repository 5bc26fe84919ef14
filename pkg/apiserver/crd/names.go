package crd

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"podium/pkg/conditions"
	"podium/pkg/scheme"
)

// taken are the names in use in one group. Resources include singular and short names,
// kinds those of lists.
type taken struct{ resources, kinds sets.Set[string] }

// decide returns the status that each definition should have, in the same order. A
// definition keeps the names that it has; of those that want the same name, the oldest
// gets it. All API servers that see the same definitions decide alike.
func decide(all []*apiextensionsv1.CustomResourceDefinition, builtIn []*scheme.Kind, now metav1.Time) []apiextensionsv1.CustomResourceDefinitionStatus {
	groups := map[string]taken{}
	of := func(group string) taken {
		if _, ok := groups[group]; !ok {
			groups[group] = taken{sets.New[string](), sets.New[string]()}
		}
		return groups[group]
	}
	for _, k := range builtIn {
		of(k.Group).add(&apiextensionsv1.CustomResourceDefinitionNames{
			Plural: k.Resource, Singular: k.Singular, ShortNames: k.ShortNames, Kind: k.Kind, ListKind: k.ListGVK().Kind,
		})
	}
	order := make([]int, len(all))
	for i, c := range all {
		order[i] = i
		of(c.Spec.Group).add(&c.Status.AcceptedNames)
	}
	slices.SortFunc(order, func(i, j int) int {
		if c := all[i].CreationTimestamp.Compare(all[j].CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(all[i].Name, all[j].Name)
	})
	out := make([]apiextensionsv1.CustomResourceDefinitionStatus, len(all))
	for _, i := range order {
		out[i] = statusOf(all[i], of(all[i].Spec.Group), now)
	}
	return out
}

func (t taken) add(names *apiextensionsv1.CustomResourceDefinitionNames) {
	t.resources.Insert(names.Plural, names.Singular)
	t.resources.Insert(names.ShortNames...)
	t.kinds.Insert(names.Kind, names.ListKind)
}

// statusOf returns the status of a definition and adds its names to those in use.
func statusOf(c *apiextensionsv1.CustomResourceDefinition, used taken, now metav1.Time) apiextensionsv1.CustomResourceDefinitionStatus {
	status := *c.Status.DeepCopy()
	set := func(kind apiextensionsv1.CustomResourceDefinitionConditionType, is bool, reason, message string) {
		value := apiextensionsv1.ConditionFalse
		if is {
			value = apiextensionsv1.ConditionTrue
		}
		status.Conditions = conditions.Set(status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: kind, Status: value, Reason: reason, Message: message, LastTransitionTime: now,
		})
	}
	reason, message := "NoConflicts", "no conflicts found"
	if conflict := accept(&c.Spec.Names, &status.AcceptedNames, used); conflict.reason != "" {
		reason, message = conflict.reason, conflict.message
	}
	accepted := reason == "NoConflicts"
	set(apiextensionsv1.NamesAccepted, accepted, reason, message)
	used.add(&status.AcceptedNames)
	switch {
	case conditions.IsTrue(status.Conditions, apiextensionsv1.Established):
	case accepted:
		set(apiextensionsv1.Established, true, "InitialNamesAccepted", "the initial names have been accepted")
	default:
		set(apiextensionsv1.Established, false, "NotAccepted", "not all names are accepted")
	}
	if apihelpers.IsProtectedCommunityGroup(c.Spec.Group) {
		state, text := apihelpers.GetAPIApprovalState(c.Annotations)
		reasons := map[apihelpers.APIApprovalState]string{
			apihelpers.APIApproved: "ApprovedAnnotation", apihelpers.APIApprovalBypassed: "UnapprovedAnnotation",
			apihelpers.APIApprovalMissing: "MissingAnnotation", apihelpers.APIApprovalInvalid: "InvalidAnnotation",
		}
		set(apiextensionsv1.KubernetesAPIApprovalPolicyConformant, state == apihelpers.APIApproved, reasons[state], text)
	}
	return status
}

type conflict struct{ reason, message string }

// accept sets each name in have to the wanted one, unless that is in use by another
// definition. It returns the last conflict, as upstream does.
func accept(want, have *apiextensionsv1.CustomResourceDefinitionNames, used taken) (last conflict) {
	free := func(name, own string, names sets.Set[string]) string {
		if name == own || !names.Has(name) {
			return ""
		}
		return fmt.Sprintf("%q is already in use", name)
	}
	one := func(name string, own *string, names sets.Set[string], reason string) {
		if problem := free(name, *own, names); problem != "" {
			last = conflict{reason, problem}
			return
		}
		*own = name
	}
	one(want.Plural, &have.Plural, used.resources, "PluralConflict")
	one(want.Singular, &have.Singular, used.resources, "SingularConflict")
	var problems []string
	for _, name := range want.ShortNames {
		if slices.Contains(have.ShortNames, name) {
			continue
		}
		if problem := free(name, "", used.resources); problem != "" {
			problems = append(problems, problem)
		}
	}
	switch len(problems) {
	case 0:
		have.ShortNames = want.ShortNames
	case 1:
		last = conflict{"ShortNamesConflict", problems[0]}
	default:
		last = conflict{"ShortNamesConflict", "[" + strings.Join(problems, ", ") + "]"}
	}
	one(want.Kind, &have.Kind, used.kinds, "KindConflict")
	one(want.ListKind, &have.ListKind, used.kinds, "ListKindConflict")
	have.Categories = want.Categories
	return last
}
