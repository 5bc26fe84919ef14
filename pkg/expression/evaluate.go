package expression

import (
	"context"
	"errors"
	"fmt"
	"math"

	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	limits "k8s.io/apiserver/pkg/apis/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/lazy"
)

// The cost that all expressions of an evaluation may have together.
const (
	ConditionsBudget = limits.RuntimeCELCostBudgetMatchConditions // match conditions of a webhook or policy
	Budget           = limits.RuntimeCELCostBudget                // the other expressions of a policy
)

// ErrBudget is the cause of an error that ends an evaluation: the budget is
// spent.
var ErrBudget = apicel.ErrOutOfBudget

// Input is the values of the variables, as maps and lists. Missing objects are
// nil.
type Input struct {
	Object, OldObject, Params map[string]any
	Request, Namespace        map[string]any

	Authorizer, RequestResource ref.Val // nil: the expressions do not use them
}

// Evaluation evaluates expressions with one input and one budget. It is not safe
// for concurrent use.
type Evaluation struct {
	ctx   context.Context
	in    *Input
	left  int64 // of the budget
	spent int64 // by variables during the present expression
	named ref.Val
}

// Begin returns an evaluation of expressions of the scope. The budget is in
// units of CEL's cost.
func (s *Scope) Begin(ctx context.Context, in *Input, budget int64) *Evaluation {
	e := &Evaluation{ctx: ctx, in: in, left: budget}
	if s.types != nil {
		named := lazy.NewMapValue(s.types)
		for _, v := range s.defined {
			named.Append(v.name, func(*lazy.MapValue) ref.Val { return e.variable(v) })
		}
		e.named = named
	}
	return e
}

// Left returns what is left of the budget.
func (e *Evaluation) Left() int64 { return e.left }

// variable evaluates a variable, which happens when an expression uses it first.
func (e *Evaluation) variable(v variable) ref.Val {
	if v.program.Error != nil {
		return celtypes.NewErr("composited variable %q fails to compile: %v", v.name, v.program.Error)
	}
	out, details, err := v.program.run.ContextEval(e.ctx, e)
	if details == nil || details.ActualCost() == nil {
		return celtypes.NewErr("unable to calculate cost of variable %q", v.name)
	}
	e.spent = add(e.spent, *details.ActualCost())
	if err != nil {
		return celtypes.NewErr("composited variable %q fails to evaluate: %v", v.name, err)
	}
	return out
}

func add(sum int64, cost uint64) int64 {
	if cost > uint64(math.MaxInt64-sum) {
		return math.MaxInt64
	}
	return sum + int64(cost)
}

// Run evaluates an expression. An error that wraps ErrBudget means that no
// further expression may be evaluated. The texts of errors are upstream's.
func (e *Evaluation) Run(p *Program) (ref.Val, error) {
	if p.Error != nil {
		return nil, &apicel.Error{Type: apicel.ErrorTypeInvalid, Detail: fmt.Sprintf("compilation error: %v", p.Error), Cause: p.Error}
	}
	e.spent = 0
	out, details, err := p.run.ContextEval(e.ctx, e)
	if details == nil || details.ActualCost() == nil {
		return nil, &apicel.Error{Type: apicel.ErrorTypeInvalid, Cause: ErrBudget,
			Detail: fmt.Sprintf("runtime cost could not be calculated for expression: %v, no further expression will be run", p.Text)}
	}
	cost := add(e.spent, *details.ActualCost())
	if cost > e.left {
		return nil, &apicel.Error{Type: apicel.ErrorTypeInvalid, Cause: ErrBudget,
			Detail: "validation failed due to running out of cost budget, no further validation rules will be run"}
	}
	e.left -= cost
	if err != nil {
		return nil, &apicel.Error{Type: apicel.ErrorTypeInvalid, Detail: fmt.Sprintf("expression '%v' resulted in error: %v", p.Text, err)}
	}
	return out, nil
}

// ResolveName implements interpreter.Activation.
func (e *Evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case objectVar:
		return value(e.in.Object), true
	case oldObjectVar:
		return value(e.in.OldObject), true
	case paramsVar:
		return value(e.in.Params), true
	case requestVar:
		return value(e.in.Request), true
	case namespaceVar:
		return value(e.in.Namespace), true
	case authorizerVar:
		return e.in.Authorizer, e.in.Authorizer != nil
	case resourceVar:
		return e.in.RequestResource, e.in.RequestResource != nil
	case variablesVar:
		return e.named, e.named != nil
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (e *Evaluation) Parent() interpreter.Activation { return nil }

// value returns null for a missing object.
func value(tree map[string]any) any {
	if tree == nil {
		return nil
	}
	return tree
}

// Conditions evaluates match conditions: it returns the index of the first that
// is false, or -1. If none is, it returns the errors of the others.
func (e *Evaluation) Conditions(programs []*Program) (no int, err error) {
	var errs []error
	for i, p := range programs {
		out, err := e.Run(p)
		if errors.Is(err, ErrBudget) {
			return -1, err
		}
		if err != nil {
			errs = append(errs, err)
		} else if out == celtypes.False {
			return i, nil
		}
	}
	if all := utilerrors.NewAggregate(errs); all != nil {
		return -1, all
	}
	return -1, nil
}
