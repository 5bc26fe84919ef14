package registry

import (
	"fmt"
	"math"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/flowcontrol/defaults"
	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

func priorityLevels(k *scheme.Kind, _ Config) *Kind {
	spec := flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()
	limited, queuing := flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc(), flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()
	life := lifecycle[*flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationSpec, flowcontrolv1.PriorityLevelConfigurationStatus]{
		parts: func(l *flowcontrolv1.PriorityLevelConfiguration) (*flowcontrolv1.PriorityLevelConfigurationSpec, *flowcontrolv1.PriorityLevelConfigurationStatus) {
			return &l.Spec, &l.Status
		},
	}
	return Of[*flowcontrolv1.PriorityLevelConfiguration]{
		Default: defaultPriorityLevel,
		Prepare: life.prepare,
		Validate: func(new, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
			return validatePriorityLevel(new)
		},
		Columns: columns(column("Type", spec["type"]), column("NominalConcurrencyShares", limited["nominalConcurrencyShares"]),
			column("Queues", queuing["queues"]), column("HandSize", queuing["handSize"]), column("QueueLengthLimit", queuing["queueLengthLimit"]), ageColumn()),
		Row:                      priorityLevelRow,
		AllowUnconditionalUpdate: true,
		Subresources: []*Subresource{life.status(k, keepMetadata, func(new, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
			return validateConditionTypes(new.Status.Conditions,
				func(c *flowcontrolv1.PriorityLevelConfigurationCondition) flowcontrolv1.PriorityLevelConfigurationConditionType {
					return c.Type
				}, field.NewPath("status", "conditions"))
		})},
	}.Kind(k)
}

func defaultPriorityLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	fill := func(p **int32, value int32) {
		if *p == nil {
			*p = &value
		}
	}
	if e := l.Spec.Exempt; e != nil {
		fill(&e.NominalConcurrencyShares, 0)
		fill(&e.LendablePercent, 0)
	}
	if e := l.Spec.Limited; e != nil {
		fill(&e.NominalConcurrencyShares, 30)
		fill(&e.LendablePercent, 0)
		if q := e.LimitResponse.Queuing; q != nil {
			orDefault(&q.HandSize, 8)
			orDefault(&q.Queues, 64)
			orDefault(&q.QueueLengthLimit, 50)
		}
	}
}

func validatePriorityLevel(l *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	path, spec := field.NewPath("spec"), &l.Spec
	var errs field.ErrorList
	for _, fixed := range defaults.Levels() {
		if fixed.Name == flowcontrolv1.PriorityLevelConfigurationNameCatchAll && l.Name == fixed.Name && !apiequality.Semantic.DeepEqual(fixed.Spec, l.Spec) {
			errs = append(errs, field.Invalid(path, l.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", l.Name)))
		}
	}
	if (l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(path.Child("type"), spec.Type, "type must be 'Exempt' if and only if name is 'exempt'"))
	}
	switch spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if spec.Limited != nil {
			errs = append(errs, field.Forbidden(path.Child("limited"), "must be nil if the type is not Limited"))
		}
		if e := spec.Exempt; e != nil {
			errs = append(errs, validateShares(e.NominalConcurrencyShares, e.LendablePercent, path.Child("exempt"))...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Exempt != nil {
			errs = append(errs, field.Forbidden(path.Child("exempt"), "must be nil if the type is Limited"))
		}
		if spec.Limited == nil {
			errs = append(errs, field.Required(path.Child("limited"), "must not be empty when type is Limited"))
		} else {
			errs = append(errs, validateLimited(spec.Limited, path.Child("limited"))...)
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), spec.Type,
			[]flowcontrolv1.PriorityLevelEnablement{flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited}))
	}
	return errs
}

// validateShares validates the seats of a level and the percentage that it lends.
func validateShares(nominal, lendable *int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if nominal != nil && *nominal < 0 {
		errs = append(errs, field.Invalid(path.Child("nominalConcurrencyShares"), *nominal, "must be a non-negative integer"))
	}
	if lendable != nil && (*lendable < 0 || *lendable > 100) {
		errs = append(errs, field.Invalid(path.Child("lendablePercent"), *lendable, "must be between 0 and 100, inclusive"))
	}
	return errs
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, path *field.Path) field.ErrorList {
	errs := validateShares(l.NominalConcurrencyShares, l.LendablePercent, path)
	if b := l.BorrowingLimitPercent; b != nil && *b < 0 {
		errs = append(errs, field.Invalid(path.Child("borrowingLimitPercent"), *b, "if specified, must be a non-negative integer"))
	}
	response := path.Child("limitResponse")
	switch queuing := response.Child("queuing"); l.LimitResponse.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if l.LimitResponse.Queuing != nil {
			errs = append(errs, field.Forbidden(queuing, "must be nil if limited.limitResponse.type is not Limited"))
		}
	case flowcontrolv1.LimitResponseTypeQueue:
		if l.LimitResponse.Queuing == nil {
			errs = append(errs, field.Required(queuing, "must not be empty if limited.limitResponse.type is Limited"))
		} else {
			errs = append(errs, validateQueuing(l.LimitResponse.Queuing, queuing)...)
		}
	default:
		errs = append(errs, fieldcheck.Supported(l.LimitResponse.Type, response.Child("type"), flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)...)
	}
	return errs
}

const (
	maxQueues   = 10_000_000
	maxHashBits = 60 // of the hash that deals a flow its hand of queues
)

func validateQueuing(q *flowcontrolv1.QueuingConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	invalid := func(name string, value int32, text string) {
		errs = append(errs, field.Invalid(path.Child(name), value, text))
	}
	if q.QueueLengthLimit <= 0 {
		invalid("queueLengthLimit", q.QueueLengthLimit, "must be positive")
	}
	switch {
	case q.Queues <= 0:
		invalid("queues", q.Queues, "must be positive")
	case q.Queues > maxQueues:
		invalid("queues", q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues))
	}
	switch {
	case q.HandSize <= 0:
		invalid("handSize", q.HandSize, "must be positive")
	case q.HandSize > q.Queues:
		invalid("handSize", q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues))
	case math.Ceil(math.Log2(float64(q.Queues))*float64(q.HandSize)) > maxHashBits:
		invalid("handSize", q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, maxHashBits))
	}
	return errs
}

func priorityLevelRow(l *flowcontrolv1.PriorityLevelConfiguration, now time.Time) []any {
	const none = "<none>"
	row := []any{l.Name, string(l.Spec.Type), none, none, none, none, age(l.CreationTimestamp, now)}
	if limited := l.Spec.Limited; limited != nil {
		row[2] = *limited.NominalConcurrencyShares
		if q := limited.LimitResponse.Queuing; q != nil {
			row[3], row[4], row[5] = q.Queues, q.HandSize, q.QueueLengthLimit
		}
	}
	return row
}
