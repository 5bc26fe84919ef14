package controllers_test

import (
	"strings"
	"testing"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	docs "podium/api/openapi"
	"podium/pkg/apiserver"
	"podium/pkg/apiserver/openapi"
)

// The status of a policy says which of its expressions cannot work, also after its
// expressions changed and when the controllers crash.
func TestTypesOfPoliciesAreChecked(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		inCluster(t, 0, func(t *testing.T, c *cluster) {
			stop := c.disturb(seed)
			for _, name := range []string{"a", "b", "c"} {
				create(c, policyFor(name, "apps", "deployments", "object.replicas > 1"))
			}
			checked := func(warning string) func() bool {
				return func() bool {
					for _, p := range all[*registration.ValidatingAdmissionPolicy](c, "") {
						s := p.Status
						if s.ObservedGeneration != p.Generation || s.TypeChecking == nil || (len(s.TypeChecking.ExpressionWarnings) > 0) != (warning != "") {
							return false
						}
						for _, w := range s.TypeChecking.ExpressionWarnings {
							if w.FieldRef != "spec.validations[0].expression" || !strings.Contains(w.Warning, warning) {
								t.Errorf("unexpected warning %+v", w)
							}
						}
					}
					return true
				}
			}
			c.until(10*time.Minute, "the policies have a warning", checked("apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'"))
			for _, name := range []string{"a", "b", "c"} {
				edit(c, name, func(p *registration.ValidatingAdmissionPolicy) {
					p.Spec.Validations[0].Expression = "object.spec.replicas > 1"
				})
			}
			c.until(10*time.Minute, "the policies have no warnings", checked(""))
			stop()
			c.quiet()
		}, withOpenAPI)
	})
}

// Custom resources are checked against the schema of their definition.
func TestTypesOfCustomResourcesAreChecked(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		c.defineBricks()
		time.Sleep(time.Minute) // the document of the group is published
		create(c, policyFor("bricks", "build.example.com", "bricks", "object.spec.size + object.metadata.name.size() + object.weight > 1"))
		c.until(time.Minute, "the policy has a warning", func() bool {
			tc := all[*registration.ValidatingAdmissionPolicy](c, "")[0].Status.TypeChecking
			return tc != nil && len(tc.ExpressionWarnings) == 1 && strings.Contains(tc.ExpressionWarnings[0].Warning, "build.example.com/v1, Kind=Brick: ERROR: <input>:1:56: undefined field 'weight'")
		})
	}, withOpenAPI)
}

func policyFor(name, group, resource, expression string) *registration.ValidatingAdmissionPolicy {
	return &registration.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: registration.ValidatingAdmissionPolicySpec{
		MatchConstraints: &registration.MatchResources{ResourceRules: []registration.NamedRuleWithOperations{{
			RuleWithOperations: registration.RuleWithOperations{
				Operations: []registration.OperationType{registration.Create},
				Rule:       registration.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			},
		}}},
		Validations: []registration.Validation{{Expression: expression}},
	}}
}

func withOpenAPI(c *apiserver.Config) {
	c.OpenAPI = &openapi.Documents{V2: docs.V2, V3: docs.V3, Paths: docs.Paths}
}
