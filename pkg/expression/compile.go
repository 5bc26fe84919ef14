package expression

import (
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	limits "k8s.io/apiserver/pkg/apis/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// Compiler compiles expressions. It builds an environment when one is first
// needed, which takes milliseconds. It is safe for concurrent use.
type Compiler struct {
	types Types
	mu    sync.Mutex
	envs  map[Declared]*environment.EnvSet
}

// NewCompiler returns a compiler. It does no work.
func NewCompiler() *Compiler { return NewTypedCompiler(Types{}) }

// NewTypedCompiler returns a compiler that knows the types of objects, so that
// it refuses expressions that cannot work with them.
func NewTypedCompiler(t Types) *Compiler {
	return &Compiler{types: t, envs: map[Declared]*environment.EnvSet{}}
}

// Program is a compiled expression. It is immutable and safe for concurrent use.
type Program struct {
	Text  string
	Error *apicel.Error // why it does not compile; nil: it does

	run cel.Program
	out *cel.Type
}

// env returns the environment with the declared variables.
func (c *Compiler) env(d Declared) (*environment.EnvSet, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if env := c.envs[d]; env != nil {
		return env, nil
	}
	variables, types := d.variables(c.types)
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(always(variables, types...))
	if err == nil && d.Patch {
		env, err = env.Extend(always([]cel.EnvOption{
			common.ResolverEnvOption(&mutation.DynamicTypeResolver{}), environment.UnversionedLib(library.JSONPatch),
		}))
	}
	if err != nil {
		return nil, fmt.Errorf("environment misconfigured: %w", err)
	}
	c.envs[d] = env
	return env, nil
}

// always makes options that apply to expressions of all versions.
func always(options []cel.EnvOption, types ...*apicel.DeclType) environment.VersionedOptions {
	return environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: options, DeclTypes: types}
}

// Compile compiles an expression that must have one of the types. stored is set
// for an expression that is in the store already: it may use features that new
// expressions may not use yet.
func (c *Compiler) Compile(text string, d Declared, stored bool, types ...*cel.Type) *Program {
	env, err := c.env(d)
	if err != nil {
		return &Program{Text: text, Error: &apicel.Error{Type: apicel.ErrorTypeInternal, Detail: err.Error()}}
	}
	return compile(env, text, stored, types)
}

// compile compiles an expression. The texts of errors are upstream's.
func compile(set *environment.EnvSet, text string, stored bool, types []*cel.Type) *Program {
	p := &Program{Text: text}
	fail := func(t apicel.ErrorType, cause error, format string, args ...any) *Program {
		p.Error = &apicel.Error{Type: t, Detail: fmt.Sprintf(format, args...), Cause: cause}
		return p
	}
	env := set.NewExpressionsEnv()
	if stored {
		env = set.StoredExpressionsEnv()
	}
	ast, issues := env.Compile(text)
	if issues != nil {
		return fail(apicel.ErrorTypeInvalid, apicel.NewCompilationError(issues), "compilation failed: %s", issues)
	}
	p.out = ast.OutputType()
	if !slices.ContainsFunc(types, func(t *cel.Type) bool { return p.out.IsExactType(t) || cel.AnyType.IsExactType(t) }) {
		if len(types) == 1 {
			return fail(apicel.ErrorTypeInvalid, nil, "must evaluate to %v but got %v", types[0], p.out)
		}
		return fail(apicel.ErrorTypeInvalid, nil, "must evaluate to one of %v but got %v", types, p.out)
	}
	var err error
	if p.run, err = env.Program(ast, cel.InterruptCheckFrequency(limits.CheckFrequency)); err != nil {
		return fail(apicel.ErrorTypeInternal, nil, "program instantiation failed: %v", err)
	}
	return p
}

// Scope compiles the expressions of one policy, which may use its named
// variables. Define is not safe for concurrent use; the rest is.
type Scope struct {
	compiler *Compiler
	types    *apicel.DeclType // of variables; nil: there are none
	envs     map[Declared]*environment.EnvSet
	defined  []variable
}

type variable struct {
	name    string
	program *Program
}

// NewScope returns a scope. Expressions know variables only if named is set.
func (c *Compiler) NewScope(named bool) *Scope {
	s := &Scope{compiler: c, envs: map[Declared]*environment.EnvSet{}}
	if named {
		s.types = apicel.NewObjectType("kubernetes.variables", map[string]*apicel.DeclField{})
	}
	return s
}

// Compile compiles an expression, which may use the variables defined so far.
func (s *Scope) Compile(text string, d Declared, stored bool, types ...*cel.Type) *Program {
	env, err := s.env(d)
	if err != nil {
		return &Program{Text: text, Error: &apicel.Error{Type: apicel.ErrorTypeInternal, Detail: err.Error()}}
	}
	return compile(env, text, stored, types)
}

func (s *Scope) env(d Declared) (*environment.EnvSet, error) {
	if env := s.envs[d]; env != nil {
		return env, nil
	}
	env, err := s.compiler.env(d)
	if err == nil && s.types != nil {
		env, err = env.Extend(always([]cel.EnvOption{cel.Variable(variablesVar, s.types.CelType())}, s.types))
	}
	if err == nil {
		s.envs[d] = env
	}
	return env, err
}

// Define compiles the expression of a variable and makes the variable known to
// expressions that are compiled later.
func (s *Scope) Define(name, text string, d Declared, stored bool) *Program {
	p := s.Compile(text, d, stored, cel.AnyType, cel.DynType)
	s.types.Fields[name] = apicel.NewDeclField(name, declared(p.out), true, nil, nil)
	s.defined = append(s.defined, variable{name, p})
	return p
}

// The types that the expressions of policies must have.

// ConditionType is the type of validations and match conditions.
func ConditionType() *cel.Type { return cel.BoolType }

// MessageType is the type of message expressions.
func MessageType() *cel.Type { return cel.StringType }

// AnnotationTypes are the types of audit annotations; null leaves one out.
func AnnotationTypes() []*cel.Type { return []*cel.Type{cel.StringType, cel.NullType} }

// ConfigurationType is the type of apply configurations.
func ConfigurationType() *cel.Type { return cel.ObjectType("Object") }

// PatchType is the type of JSON patches.
func PatchType() *cel.Type { return cel.ListType(cel.ObjectType("JSONPatch")) }
