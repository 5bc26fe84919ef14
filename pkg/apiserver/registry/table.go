package registry

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

// column returns a text column.
func column(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description}
}

// number returns an integer column.
func number(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description}
}

// boolean returns a column of true and false.
func boolean(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "boolean", Description: description}
}

// wide marks columns that only `kubectl get -o wide` prints.
func wide(columns ...metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	for i := range columns {
		columns[i].Priority = 1
	}
	return columns
}

// columns returns the name column, with which every table begins, and the rest.
func columns(rest ...metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	name := column("Name", metav1.ObjectMeta{}.SwaggerDoc()["name"])
	name.Format = "name"
	return append([]metav1.TableColumnDefinition{name}, rest...)
}

func ageColumn() metav1.TableColumnDefinition {
	return column("Age", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])
}

// age returns the time since t in short form: 5m, 3h20m, 42d.
func age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

// templateCells returns the wide cells of a kind with a pod template.
func templateCells(t *corev1.PodTemplateSpec, selector *metav1.LabelSelector) []any {
	var names, images []string
	for i := range t.Spec.Containers {
		names = append(names, t.Spec.Containers[i].Name)
		images = append(images, t.Spec.Containers[i].Image)
	}
	return []any{strings.Join(names, ","), strings.Join(images, ","), metav1.FormatLabelSelector(selector)}
}

// templateColumns returns the columns of templateCells.
func templateColumns(selector string) []metav1.TableColumnDefinition {
	return wide(
		column("Containers", "Names of each container in the template."),
		column("Images", "Images referenced by each container in the template."),
		column("Selector", selector))
}

func formatLabels(m map[string]string) string { return orNone(labels.FormatLabels(m)) }

// orUnsetPtr prints a value that may be nil.
func orUnsetPtr[T ~string](s *T) string {
	if s == nil {
		return "<unset>"
	}
	return string(*s)
}
