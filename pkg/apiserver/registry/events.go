package registry

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/scheme"
)

func events(k *scheme.Kind, _ Config) *Kind {
	return Of[*corev1.Event]{
		Validate:                 validateEvent,
		Columns:                  eventColumns(),
		Row:                      eventRow,
		Fields:                   eventFields,
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

// Limits of events of the new sort, those with an eventTime.
const (
	maxEventField   = 128
	maxEventMessage = 1024
)

func validateEvent(new, _ *corev1.Event) field.ErrorList {
	involved := field.NewPath("involvedObject", "namespace")
	where, about := new.Namespace, new.InvolvedObject.Namespace
	const mismatch = "does not match event.namespace"
	if new.EventTime.IsZero() {
		if about != where && !(about == "" && where == metav1.NamespaceDefault) {
			return field.ErrorList{field.Invalid(involved, about, mismatch)}
		}
		return nil
	}
	var errs field.ErrorList
	if about == "" && where != metav1.NamespaceDefault && where != metav1.NamespaceSystem {
		errs = append(errs, field.Invalid(involved, about, mismatch))
	}
	if new.ReportingController == "" {
		errs = append(errs, field.Required(field.NewPath("reportingComponent"), ""))
	} else {
		errs = append(errs, messages(validation.IsQualifiedName(new.ReportingController), field.NewPath("reportingComponent"), new.ReportingController)...)
	}
	for _, f := range []struct {
		name, value string
	}{{"reportingInstance", new.ReportingInstance}, {"action", new.Action}, {"reason", new.Reason}} {
		if f.value == "" {
			errs = append(errs, field.Required(field.NewPath(f.name), ""))
		}
		errs = append(errs, atMost(f.value, maxEventField, field.NewPath(f.name))...)
	}
	return append(errs, atMost(new.Message, maxEventMessage, field.NewPath("message"))...)
}

func atMost(value string, max int, path *field.Path) field.ErrorList {
	if len(value) <= max {
		return nil
	}
	return field.ErrorList{field.Invalid(path, "", fmt.Sprintf("can have at most %d characters", max))}
}

func eventFields(e *corev1.Event) fields.Set {
	o := &e.InvolvedObject
	source, reporter := e.Source.Component, e.ReportingController
	orDefault(&source, e.ReportingController)
	orDefault(&reporter, e.Source.Component)
	return fields.Set{
		"involvedObject.kind":            o.Kind,
		"involvedObject.namespace":       o.Namespace,
		"involvedObject.name":            o.Name,
		"involvedObject.uid":             string(o.UID),
		"involvedObject.apiVersion":      o.APIVersion,
		"involvedObject.resourceVersion": o.ResourceVersion,
		"involvedObject.fieldPath":       o.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             reporter,
		"source":                         source,
		"type":                           e.Type,
	}
}

func eventColumns() []metav1.TableColumnDefinition {
	doc, object := corev1.Event{}.SwaggerDoc(), corev1.ObjectReference{}.SwaggerDoc()
	lastly := columns()[0]
	lastly.Priority = 1
	return []metav1.TableColumnDefinition{
		column("Last Seen", doc["lastTimestamp"]),
		column("Type", doc["type"]),
		column("Reason", doc["reason"]),
		column("Object", doc["involvedObject"]),
		wide(column("Subobject", object["fieldPath"]))[0],
		wide(column("Source", doc["source"]))[0],
		column("Message", doc["message"]),
		wide(column("First Seen", doc["firstTimestamp"]))[0],
		wide(column("Count", doc["count"]))[0],
		lastly,
	}
}

func eventRow(e *corev1.Event, now time.Time) []any {
	when := func(t metav1.Time) string {
		if t.IsZero() {
			t = metav1.NewTime(e.EventTime.Time)
		}
		return age(t, now)
	}
	last, times := when(e.LastTimestamp), e.Count
	switch {
	case e.Series != nil:
		last, times = age(metav1.NewTime(e.Series.LastObservedTime.Time), now), e.Series.Count
	case times == 0:
		times = 1 // an event of the new sort that happened once
	}
	object := e.InvolvedObject.Name
	if e.InvolvedObject.Kind != "" {
		object = strings.ToLower(e.InvolvedObject.Kind) + "/" + object
	}
	return []any{last, e.Type, e.Reason, object, e.InvolvedObject.FieldPath, eventSource(e),
		strings.TrimSpace(e.Message), when(e.FirstTimestamp), int64(times), e.Name}
}

func eventSource(e *corev1.Event) string {
	component, instance := e.Source.Component, e.Source.Host
	if component == "" {
		component, instance = e.ReportingController, e.ReportingInstance
	}
	if instance == "" {
		return component
	}
	return component + ", " + instance
}
