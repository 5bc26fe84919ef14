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
				create(c, &registration.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: registration.ValidatingAdmissionPolicySpec{
					MatchConstraints: &registration.MatchResources{ResourceRules: []registration.NamedRuleWithOperations{{
						RuleWithOperations: registration.RuleWithOperations{
							Operations: []registration.OperationType{registration.Create},
							Rule:       registration.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
						},
					}}},
					Validations: []registration.Validation{{Expression: "object.replicas > 1"}},
				}})
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

func withOpenAPI(c *apiserver.Config) {
	c.OpenAPI = &openapi.Documents{V2: docs.V2, V3: docs.V3, Paths: docs.Paths}
}
