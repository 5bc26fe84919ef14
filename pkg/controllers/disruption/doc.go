// Package disruption computes how many pods of each PodDisruptionBudget may be evicted, and
// writes it to the status, from which the eviction subresource takes it. It also takes back
// the condition DisruptionTarget of pods that were marked and never deleted.
package disruption
