package registry

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

const (
	systemClassPrefix = "system-"
	maxUserPriority   = 1_000_000_000 // of classes that are not the system's
)

// SystemPriorityClasses returns the classes of every cluster, for pods without
// which it does not work.
func SystemPriorityClasses() []*schedulingv1.PriorityClass {
	class := func(name string, value int32, description string) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: description,
			PreemptionPolicy: new(corev1.PreemptLowerPriority),
		}
	}
	return []*schedulingv1.PriorityClass{
		class("system-node-critical", 2*maxUserPriority+1000, "Used for system critical pods that must not be moved from their current node."),
		class("system-cluster-critical", 2*maxUserPriority, "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
	}
}

func priorityClasses(k *scheme.Kind, _ Config) *Kind {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return Of[*schedulingv1.PriorityClass]{
		Default: func(c *schedulingv1.PriorityClass) {
			if c.PreemptionPolicy == nil {
				c.PreemptionPolicy = new(corev1.PreemptLowerPriority)
			}
		},
		Prepare:  counted(func(c *schedulingv1.PriorityClass) *int32 { return &c.Value }), // which is immutable
		Validate: validatePriorityClass,
		Columns: columns(number("Value", doc["value"]), boolean("Global-Default", doc["globalDefault"]), ageColumn(),
			column("PreemptionPolicy", doc["preemptionPolicy"])),
		Row: func(c *schedulingv1.PriorityClass, now time.Time) []any {
			return []any{c.Name, int64(c.Value), c.GlobalDefault, age(c.CreationTimestamp, now), string(*c.PreemptionPolicy)}
		},
		BeforeDelete: func(c *schedulingv1.PriorityClass, _ *metav1.DeleteOptions, _ time.Time) (keep bool, err error) {
			if strings.HasPrefix(c.Name, systemClassPrefix) {
				return false, apierrors.NewForbidden(k.GVR().GroupResource(), c.Name, errors.New("this is a system priority class and cannot be deleted"))
			}
			return false, nil
		},
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

func validatePriorityClass(new, old *schedulingv1.PriorityClass) field.ErrorList {
	value, policy := field.NewPath("value"), field.NewPath("preemptionPolicy")
	var errs field.ErrorList
	if old != nil {
		if new.Value != old.Value {
			errs = append(errs, field.Forbidden(value, "may not be changed in an update."))
		}
		return append(errs, apivalidation.ValidateImmutableField(new.PreemptionPolicy, old.PreemptionPolicy, policy)...)
	}
	if strings.HasPrefix(new.Name, systemClassPrefix) {
		if err := matchSystemClass(new); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemClassPrefix+"' prefix are reserved for system use only. error: "+err.Error()))
		}
	} else if new.Value > maxUserPriority {
		errs = append(errs, field.Forbidden(value, fmt.Sprintf("maximum allowed value of a user defined priority is %d", maxUserPriority)))
	}
	return append(errs, fieldcheck.OneOf(*new.PreemptionPolicy, policy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
}

// matchSystemClass returns an error unless c is a class of every cluster.
func matchSystemClass(c *schedulingv1.PriorityClass) error {
	for _, s := range SystemPriorityClasses() {
		switch {
		case s.Name != c.Name:
		case s.Value != c.Value:
			return fmt.Errorf("value of %v PriorityClass must be %v", s.Name, s.Value)
		case s.GlobalDefault != c.GlobalDefault:
			return fmt.Errorf("globalDefault of %v PriorityClass must be %v", s.Name, s.GlobalDefault)
		default:
			return nil
		}
	}
	return fmt.Errorf("%v is not a known system priority class", c.Name)
}
