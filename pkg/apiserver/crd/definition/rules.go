package definition

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The limits of the estimated cost of rules: of one, and of all rules of a schema.
const (
	maxRuleCost  = 10_000_000
	maxTotalCost = 100_000_000
	mostShown    = 4 // the most expensive rules that an error names
)

// ruleTexts validates the rules of n without compiling them.
func (n *node) ruleTexts() (errs field.ErrorList) {
	for i := range n.schema.XValidations {
		errs = append(errs, validateRule(n.schema, &n.schema.XValidations[i], n.path.Child("x-kubernetes-validations").Index(i))...)
	}
	return errs
}

func validateRule(schema *apiextensions.JSONSchemaProps, rule *apiextensions.ValidationRule, path *field.Path) (errs field.ErrorList) {
	const empty, broken = "must be non-empty if specified", "must not contain line breaks"
	blank := func(text string) bool { return text != "" && strings.TrimSpace(text) == "" }
	lines := func(text string) bool { return strings.ContainsAny(strings.TrimSpace(text), "\n\r") }
	switch {
	case strings.TrimSpace(rule.Rule) == "":
		errs = append(errs, field.Required(path.Child("rule"), "rule is not specified"))
	case blank(rule.Message):
		errs = append(errs, field.Invalid(path.Child("message"), rule.Message, empty))
	case lines(rule.Message):
		errs = append(errs, field.Invalid(path.Child("message"), rule.Message, broken))
	case lines(rule.Rule) && rule.Message == "":
		errs = append(errs, field.Required(path.Child("message"), "message must be specified if rule contains line breaks"))
	}
	if blank(rule.MessageExpression) {
		errs = append(errs, field.Required(path.Child("messageExpression"), "messageExpression must be non-empty if specified"))
	}
	reasons := []apiextensions.FieldValueErrorReason{apiextensions.FieldValueDuplicate, apiextensions.FieldValueForbidden, apiextensions.FieldValueInvalid, apiextensions.FieldValueRequired}
	if rule.Reason != nil && !slices.Contains(reasons, *rule.Reason) {
		errs = append(errs, field.NotSupported(path.Child("reason"), *rule.Reason, reasons))
	}
	if rule.FieldPath == "" {
		return errs
	}
	where := path.Child("fieldPath")
	if blank(rule.FieldPath) {
		errs = append(errs, field.Invalid(where, rule.FieldPath, empty))
	}
	if strings.ContainsAny(rule.FieldPath, "\n\r") {
		errs = append(errs, field.Invalid(where, rule.FieldPath, broken))
	}
	if s, err := structuralschema.NewStructural(schema); err == nil {
		if _, _, err := cel.ValidFieldPath(rule.FieldPath, s); err != nil {
			errs = append(errs, field.Invalid(where, rule.FieldPath, "must be a valid path"))
		}
	}
	return errs
}

// compile compiles the rules of n and adds their errors and costs.
func (w *walk) compile(n node) {
	path := n.path.Child("x-kubernetes-validations")
	declared := model.SchemaDeclType(n.structural, n.root || n.schema.XEmbeddedResource)
	if declared == nil {
		w.rules = append(w.rules, field.Invalid(path, "", "unable to convert structural schema to CEL declarations"))
		return
	}
	set := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	compiled, err := cel.Compile(n.structural, declared, celconfig.PerCallLimit, set, cel.NewExpressionsEnvLoader())
	if err != nil {
		w.rules = append(w.rules, field.Invalid(path, "", err.Error()))
		return
	}
	for i := range compiled {
		w.judge(n, &n.schema.XValidations[i], &compiled[i], path.Index(i))
	}
}

// judge adds the errors and costs of a compiled rule.
func (w *walk) judge(n node, rule *apiextensions.ValidationRule, c *cel.CompilationResult, path *field.Path) {
	add := func(err *field.Error) { w.rules = append(w.rules, err) }
	times := n.times
	if times == unlimited {
		times = c.MaxCardinality
	}
	w.spend("estimated rule cost", path.Child("rule"), multiply(c.MaxCost, times))
	switch {
	case c.Error == nil:
	case c.Error.Type == apiservercel.ErrorTypeRequired:
		add(field.Required(path.Child("rule"), c.Error.Detail))
	default:
		add(field.Invalid(path.Child("rule"), *rule, c.Error.Detail))
	}
	if c.MessageExpressionError != nil {
		add(field.Invalid(path.Child("messageExpression"), *rule, c.MessageExpressionError.Detail))
	} else if c.MessageExpression != nil {
		w.spend("estimated messageExpression cost", path.Child("messageExpression"), c.MessageExpressionMaxCost)
	}
	if c.UsesOldSelf && n.unrelated != nil {
		add(field.Invalid(path.Child("rule"), rule.Rule, fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", n.unrelated)))
	} else if !c.UsesOldSelf && rule.OptionalOldSelf != nil {
		add(field.Invalid(path.Child("optionalOldSelf"), *rule.OptionalOldSelf, "may not be set if oldSelf is not used in rule"))
	}
}

// costs are the estimated costs of expressions.
type costs struct {
	total uint64
	most  []cost // the most expensive ones, in descending order
}

type cost struct {
	path *field.Path
	cost uint64
}

// spend adds the cost of an expression, and an error if that is too high.
func (w *walk) spend(what string, path *field.Path, n uint64) {
	if n > maxRuleCost {
		w.rules = append(w.rules, field.Forbidden(path, tooCostly(what, n, maxRuleCost)))
	}
	if w.costs.total += n; w.costs.total < n {
		w.costs.total = unlimited
	}
	if n < maxTotalCost/100 {
		return
	}
	w.costs.most = append(w.costs.most, cost{path, n})
	slices.SortStableFunc(w.costs.most, func(a, b cost) int {
		switch {
		case a.cost > b.cost:
			return -1
		case a.cost < b.cost:
			return 1
		}
		return 0
	})
	w.costs.most = w.costs.most[:min(len(w.costs.most), mostShown)]
}

// total returns errors if all rules together cost too much.
func (w *walk) total(path *field.Path) (errs field.ErrorList) {
	if w.costs.total <= maxTotalCost {
		return nil
	}
	for _, c := range w.costs.most {
		errs = append(errs, field.Forbidden(c.path, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"))
	}
	return append(errs, field.Forbidden(path, tooCostly("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema", w.costs.total, maxTotalCost)))
}

// tooCostly returns the message for a cost over its limit.
func tooCostly(what string, n, limit uint64) string {
	times := float64(n) / float64(limit)
	factor := fmt.Sprintf("%.1fx", times)
	switch {
	case times > 100:
		factor = "more than 100x"
	case times < 1.5:
		factor = fmt.Sprintf("%fx", times)
	}
	return fmt.Sprintf("%s exceeds budget by factor of %s (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)", what, factor)
}
