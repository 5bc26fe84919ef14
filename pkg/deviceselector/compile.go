package deviceselector

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/ext"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/version"
	limits "k8s.io/apiserver/pkg/apis/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// Names of the variable and its fields.
const (
	deviceVar     = "device"
	driverVar     = "driver"
	attributesVar = "attributes"
	capacityVar   = "capacity"
	multipleVar   = "allowMultipleAllocations"
)

// Selector is a compiled expression. It is immutable and safe for concurrent use.
type Selector struct {
	Error   *apicel.Error // why it does not compile; nil: it does
	MaxCost uint64        // an upper bound of the cost of one evaluation

	program cel.Program
}

// TooComplex reports whether an evaluation may cost more than the API allows.
func (s *Selector) TooComplex() bool { return s.MaxCost > resourcev1.CELSelectorExpressionMaxCost }

// Compiler compiles expressions and caches the result. It is safe for concurrent use.
type Compiler struct {
	mu    sync.Mutex
	set   *environment.EnvSet // nil: not needed so far; it takes milliseconds to build
	cache map[cached]*Selector
}

// cached is the key of the cache.
type cached struct {
	text   string
	stored bool
}

// maxCached is how many compiled expressions are kept. When there are more, the cache is
// emptied: a cluster has few classes, and the claims of a template share their expressions.
const maxCached = 1000

// NewCompiler returns a compiler. It does no work.
func NewCompiler() *Compiler { return &Compiler{cache: map[cached]*Selector{}} }

// Compile compiles an expression. stored is set for an expression that is in the store
// already: it may use features that new expressions may not use yet.
func (c *Compiler) Compile(text string, stored bool) *Selector {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cached{text, stored}
	if s := c.cache[key]; s != nil {
		return s
	}
	if len(c.cache) >= maxCached {
		clear(c.cache)
	}
	s := c.compile(text, stored)
	c.cache[key] = s
	return s
}

func (c *Compiler) compile(text string, stored bool) *Selector {
	fail := func(t apicel.ErrorType, cause error, format string, args ...any) *Selector {
		return &Selector{Error: &apicel.Error{Type: t, Detail: fmt.Sprintf(format, args...), Cause: cause}}
	}
	if c.set == nil {
		var err error
		if c.set, err = newEnvironment(); err != nil {
			return fail(apicel.ErrorTypeInternal, nil, "environment misconfigured: %v", err)
		}
	}
	env := c.set.NewExpressionsEnv()
	if stored {
		env = c.set.StoredExpressionsEnv()
	}
	ast, issues := env.Compile(text)
	if issues != nil {
		return fail(apicel.ErrorTypeInvalid, apicel.NewCompilationError(issues), "compilation failed: %s", issues)
	}
	if out := ast.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.AnyType) {
		return fail(apicel.ErrorTypeInvalid, nil, "must evaluate to %v or the unknown type, not %v", cel.BoolType, out)
	}
	program, err := env.Program(ast, cel.CostLimit(resourcev1.CELSelectorExpressionMaxCost), cel.InterruptCheckFrequency(limits.CheckFrequency))
	if err != nil {
		return fail(apicel.ErrorTypeInternal, nil, "program instantiation failed: %v", err)
	}
	cost, err := env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: sizes{}})
	if err != nil {
		return fail(apicel.ErrorTypeInternal, nil, "cost estimation failed: %v", err)
	}
	return &Selector{MaxCost: cost.Max, program: program}
}

// newEnvironment returns the environment with the variable device.
func newEnvironment() (*environment.EnvSet, error) {
	unknown := apicel.NewSimpleTypeWithMinSize("any", cel.AnyType, nil, 1)
	attributes := apicel.NewMapType(apicel.StringType, unknown, maxMembers)
	capacities := apicel.NewMapType(apicel.StringType, apicel.QuantityDeclType, maxMembers)
	fields := map[string]*apicel.DeclField{}
	for name, t := range map[string]*apicel.DeclType{
		driverVar:     apicel.StringType,
		attributesVar: apicel.NewMapType(apicel.StringType, attributes, maxMembers),
		capacityVar:   apicel.NewMapType(apicel.StringType, capacities, maxMembers),
		multipleVar:   apicel.BoolType,
	} {
		fields[name] = apicel.NewDeclField(name, t, true, nil, nil)
	}
	device := apicel.NewObjectType("kubernetes.DRADevice", fields)
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable(deviceVar, device.CelType()), library.SemverLib(library.SemverVersion(1)), ext.Bindings(ext.BindingsVersion(0)),
		},
		DeclTypes: []*apicel.DeclType{device},
	})
}

// maxMembers is the largest number of attributes, and of capacities, of a device.
const maxMembers = resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice

// sizes estimates the sizes of what a device has, by the limits of the API.
type sizes struct{}

// EstimateSize implements checker.CostEstimator.
func (sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) < 2 || path[0] != deviceVar {
		return nil
	}
	switch at := path[1]; {
	case at == driverVar:
		return &checker.SizeEstimate{Max: resourcev1.DriverNameMaxLength}
	case at != attributesVar && at != capacityVar:
		return nil
	case len(path) > 2 && path[len(path)-1] == "@keys":
		return &checker.SizeEstimate{Max: resourcev1.DeviceMaxDomainLength}
	case len(path) <= 3: // the domains, or the names of a domain
		return &checker.SizeEstimate{Max: maxMembers}
	case at == attributesVar:
		return &checker.SizeEstimate{Max: resourcev1.DeviceAttributeMaxValueLength}
	}
	return &checker.SizeEstimate{Max: 1} // a quantity
}

// EstimateCallCost implements checker.CostEstimator.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// Matches evaluates the expression for a device. An error means that the expression does not
// work with this device, or is too expensive.
func (s *Selector) Matches(ctx context.Context, d Device) (bool, error) {
	if s.Error != nil {
		return false, s.Error
	}
	out, _, err := s.program.ContextEval(ctx, d.variables)
	switch {
	case err != nil && context.Cause(ctx) != nil:
		return false, fmt.Errorf("runtime error: %w: %w", err, context.Cause(ctx))
	case err != nil:
		return false, fmt.Errorf("runtime error: %w", err)
	}
	match, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("CEL result is not a boolean")
	}
	return match, nil
}
