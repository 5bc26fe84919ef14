package backends

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"podium/pkg/controller"
	"podium/pkg/controller/loop"
)

// Plan is the writes that give a Service the right EndpointSlices. Apply performs them in
// this order, so that no endpoint that stays is ever missing.
type Plan struct {
	Create, Update, Delete []*discoveryv1.EndpointSlice
}

// Slices are the EndpointSlices that one controller manages.
type Slices struct {
	controller.Writer[*discoveryv1.EndpointSlice]
	ManagedBy string
	lookup    func(namespace, service string) []*discoveryv1.EndpointSlice
}

// NewSlices returns the slices with the label managed-by managedBy. lookup finds all slices
// of a Service, whichever controller manages them.
func NewSlices(w controller.Writer[*discoveryv1.EndpointSlice], managedBy string, lookup func(namespace, service string) []*discoveryv1.EndpointSlice) Slices {
	return Slices{w, managedBy, lookup}
}

// Of lists the slices of a Service that are not being deleted.
func (m Slices) Of(key loop.Key) (out []*discoveryv1.EndpointSlice) {
	for _, es := range m.lookup(key.Namespace, key.Name) {
		if m.manages(es) && es.DeletionTimestamp == nil {
			out = append(out, es)
		}
	}
	return out
}

// Service is the wake rule for slices: the key of the Service of a managed slice.
func (m Slices) Service(es *discoveryv1.EndpointSlice) []loop.Key {
	if !m.manages(es) {
		return nil
	}
	return []loop.Key{{Namespace: es.Namespace, Name: es.Labels[discoveryv1.LabelServiceName]}}
}

func (m Slices) manages(es *discoveryv1.EndpointSlice) bool {
	return es.Labels[discoveryv1.LabelManagedBy] == m.ManagedBy
}

// Apply performs the plan of a key. It deletes nothing if a write before has failed: the
// slices to delete may still be needed.
func (m Slices) Apply(ctx context.Context, key loop.Key, todo Plan, create func(context.Context, loop.Key, *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error)) error {
	var errs []error
	for _, es := range todo.Create {
		if _, err := create(ctx, key, es); err != nil && !controller.NamespaceTerminating(err) {
			errs = append(errs, fmt.Errorf("create slice: %w", err))
		}
	}
	for _, es := range todo.Update {
		_, err := m.Update(ctx, key, es)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, es := range todo.Delete {
		if _, err := m.Delete(ctx, key, es, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// GroupKey returns a key that is equal for slices that may exchange endpoints. It depends
// on what cannot change within a slice: the address type and the ports.
func GroupKey(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprintf("%s/%s/%d/%s", ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, ""), ptr.Deref(p.Port, 0), ptr.Deref(p.AppProtocol, ""))
	}
	slices.Sort(texts)
	return string(family) + " " + strings.Join(texts, " ")
}

// SliceLabels returns the labels of the slices of an object with the given labels and the
// Service's name.
func SliceLabels(labels map[string]string, service, managedBy string) map[string]string {
	return With(labels, map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: managedBy})
}

// ServiceLabels returns the Service's labels for its endpoints, with the label that marks
// a headless Service.
func ServiceLabels(s *corev1.Service) map[string]string {
	out := With(s.Labels, nil)
	delete(out, corev1.IsHeadlessService)
	if Headless(s) {
		out[corev1.IsHeadlessService] = ""
	}
	return out
}

// With returns a new map, never nil, with the entries of both; more takes precedence.
func With(labels, more map[string]string) map[string]string {
	out := make(map[string]string, len(labels)+len(more))
	maps.Copy(out, labels)
	maps.Copy(out, more)
	return out
}
