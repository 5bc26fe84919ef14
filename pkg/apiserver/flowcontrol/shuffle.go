package flowcontrol

import "slices"

// maxHand is the largest hand that validation allows: log2(queues) times hand is at
// most 60 bits, and a hand is at most as large as the deck.
const maxHand = 16

// deal returns hand distinct cards of a deck of the given size, which hash determines,
// in dest. Two flows have the same hand only with the probability that their hashes
// agree in it.
func deal(dest []int, hash uint64, deck, hand int) []int {
	var sorted [maxHand]int
	taken := sorted[:0]
	for i := range min(hand, maxHand) {
		left := uint64(deck - i)
		card := int(hash % left)
		hash /= left
		// card counts those that are left: skip the ones taken.
		at := 0
		for at < len(taken) && taken[at] <= card {
			card++
			at++
		}
		taken = slices.Insert(taken, at, card)
		dest = append(dest, card)
	}
	return dest
}
