package api

import (
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selection is what the selectors of a list request select.
type selection struct {
	labels labels.Selector
	fields fields.Selector
}

// selects parses the selectors of a list request, whose fields are names and, of pods,
// namespaces. Its errors are 400s.
func selects(query url.Values, namespaced bool) (s selection, err error) {
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest(fmt.Sprintf("unable to parse labelSelector: %v", err))
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest(fmt.Sprintf("unable to parse fieldSelector: %v", err))
	}
	for _, r := range s.fields.Requirements() {
		if r.Field != metav1.ObjectNameField && (r.Field != "metadata.namespace" || !namespaced) {
			return s, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
		}
	}
	return s, nil
}

func (s selection) matches(obj metav1.Object) bool {
	return s.labels.Matches(labels.Set(obj.GetLabels())) &&
		s.fields.Matches(fields.Set{metav1.ObjectNameField: obj.GetName(), "metadata.namespace": obj.GetNamespace()})
}
