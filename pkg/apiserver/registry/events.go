package registry

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

func events(k *scheme.Kind, _ Config) *Kind {
	v1 := converted(scheme.As[eventsv1.Event, eventsv1.EventList](k, eventsv1.SchemeGroupVersion), eventToV1, eventFromV1, validateV1Event)
	v1.Fields = v1EventFields()
	return Of[*corev1.Event]{
		Versions:                 []*Version{v1},
		Validate:                 validateEvent,
		Columns:                  eventColumns(),
		Row:                      eventRow,
		Fields:                   eventFields,
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

// Limits of events with an eventTime, as events.k8s.io creates them.
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
		errs = append(errs, fieldcheck.Invalid(validation.IsQualifiedName(new.ReportingController), field.NewPath("reportingComponent"), new.ReportingController)...)
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

func v1EventFields() map[string]string {
	out := map[string]string{"reason": "reason", "reportingController": "reportingComponent", "type": "type"}
	for _, name := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		out["regarding."+name] = "involvedObject." + name
	}
	return out
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
		times = 1 // an event with an eventTime that happened once
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

// eventToV1 converts an event to events.k8s.io/v1.
func eventToV1(e *corev1.Event) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, Series: (*eventsv1.EventSeries)(e.Series),
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject, Related: e.Related, Note: e.Message, Type: e.Type,
		DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp,
		DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
	}
}

// eventFromV1 is the inverse of eventToV1.
func eventFromV1(e *eventsv1.Event) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, Series: (*corev1.EventSeries)(e.Series),
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, InvolvedObject: e.Regarding, Related: e.Related, Message: e.Note, Type: e.Type,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp,
		LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
	}
}

// validateV1Event validates what events.k8s.io/v1 requires and core/v1 does not:
// eventTime is set, the deprecated fields are not, and only the series may change.
func validateV1Event(new, old *corev1.Event) field.ErrorList {
	if old == nil {
		return validateNewV1Event(new)
	}
	var errs field.ErrorList
	if !apiequality.Semantic.DeepEqual(new.Series, old.Series) {
		errs = validateEventSeries(new)
	}
	for _, f := range []struct {
		name     string
		new, old any
	}{
		{"involvedObject", new.InvolvedObject, old.InvolvedObject}, {"reason", new.Reason, old.Reason},
		{"message", new.Message, old.Message}, {"source", new.Source, old.Source},
		{"firstTimestamp", new.FirstTimestamp, old.FirstTimestamp}, {"lastTimestamp", new.LastTimestamp, old.LastTimestamp},
		{"count", new.Count, old.Count}, {"type", new.Type, old.Type}, {"eventTime", new.EventTime, old.EventTime},
		{"action", new.Action, old.Action}, {"related", new.Related, old.Related},
		{"reportingController", new.ReportingController, old.ReportingController},
		{"reportingInstance", new.ReportingInstance, old.ReportingInstance},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(f.new, f.old, field.NewPath(f.name))...)
	}
	return errs
}

func validateNewV1Event(e *corev1.Event) field.ErrorList {
	errs := validateEventSeries(e)
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type)))
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.IsZero()}, {"lastTimestamp", !e.LastTimestamp.IsZero()},
		{"count", e.Count != 0}, {"source", e.Source != corev1.EventSource{}},
	} {
		if f.set {
			errs = append(errs, field.Invalid(field.NewPath(f.name), "", "needs to be unset"))
		}
	}
	return errs
}

func validateEventSeries(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if e.Series != nil && e.Series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if e.Series != nil && e.Series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}
