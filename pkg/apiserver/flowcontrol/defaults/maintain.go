package defaults

import (
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Mandatory reports whether the server insists on the object of that name, whatever
// its annotation. The names are the same for both kinds.
func Mandatory(name string) bool {
	return name == flowcontrolv1.FlowSchemaNameExempt || name == flowcontrolv1.FlowSchemaNameCatchAll
}

// AutoUpdated reports whether the server maintains the spec of a stored object. An
// object without a valid annotation counts as maintained if its spec was never
// changed.
func AutoUpdated(obj metav1.Object) bool {
	if Mandatory(obj.GetName()) {
		return true
	}
	auto, err := strconv.ParseBool(obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	return auto || err != nil && obj.GetGeneration() == 1
}

// Schema changes a stored FlowSchema into want, as far as the server maintains it,
// and reports whether it changed.
func Schema(have, want *flowcontrolv1.FlowSchema) bool {
	return maintain(have, &have.Spec, &want.Spec)
}

// Level changes a stored PriorityLevelConfiguration into want, as far as the server
// maintains it, and reports whether it changed. The shares of the level exempt are
// for users to choose.
func Level(have, want *flowcontrolv1.PriorityLevelConfiguration) bool {
	spec := want.Spec
	if spec.Exempt != nil && have.Spec.Exempt != nil {
		spec.Exempt = have.Spec.Exempt
	}
	return maintain(have, &have.Spec, &spec)
}

func maintain[S any](have metav1.Object, spec, want *S) (changed bool) {
	auto := AutoUpdated(have)
	notes := have.GetAnnotations()
	if text := strconv.FormatBool(auto); notes[flowcontrolv1.AutoUpdateAnnotationKey] != text {
		if notes == nil {
			notes = map[string]string{}
		}
		notes[flowcontrolv1.AutoUpdateAnnotationKey] = text
		have.SetAnnotations(notes)
		changed = true
	}
	if auto && !apiequality.Semantic.DeepEqual(spec, want) {
		*spec = *want
		have.SetGeneration(have.GetGeneration() + 1)
		changed = true
	}
	return changed
}
