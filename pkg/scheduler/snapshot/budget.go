package snapshot

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Budget is a PodDisruptionBudget.
type Budget struct {
	selector  labels.Selector
	disrupted map[string]bool // pods whose eviction DisruptionsAllowed takes into account already
	Allowed   int32
}

// Covers reports whether the disruption of a pod of the budget's namespace counts.
func (b *Budget) Covers(p *Pod) bool {
	return !b.disrupted[p.Name] && b.selector.Matches(labels.Set(p.Labels))
}

// SetBudget adds or replaces a PodDisruptionBudget.
func (s *Snapshot) SetBudget(pdb *policyv1.PodDisruptionBudget) {
	b := &Budget{selector: parse(pdb.Spec.Selector), Allowed: pdb.Status.DisruptionsAllowed, disrupted: map[string]bool{}}
	for name := range pdb.Status.DisruptedPods {
		b.disrupted[name] = true
	}
	if s.budgets[pdb.Namespace] == nil {
		s.budgets[pdb.Namespace] = map[string]*Budget{}
	}
	s.budgets[pdb.Namespace][pdb.Name] = b
	s.budgetVersion++
}

// RemoveBudget removes a PodDisruptionBudget.
func (s *Snapshot) RemoveBudget(namespace, name string) {
	delete(s.budgets[namespace], name)
	s.budgetVersion++
}

// Budgets returns the PodDisruptionBudgets of a namespace by name. Callers must not modify them.
func (s *Snapshot) Budgets(namespace string) map[string]*Budget { return s.budgets[namespace] }

// BudgetVersion changes whenever a PodDisruptionBudget does.
func (s *Snapshot) BudgetVersion() int64 { return s.budgetVersion }
