package arch_test

import (
	"fmt"
	"maps"
	"slices"
)

// order puts the boxes of a drawing in a line so that few arrows run against
// it, those that call first: the greedy ordering of Eades, Lin and Smyth. What
// calls and is not called goes to the front, what is called and calls no more
// to the back, and in a circle the box goes to the front that has most arrows
// out over those in; of equals the first by name. The least possible number is
// a hard problem, so this one is near it, and the same in each run. Figures of
// other drawings do not compare.
func order(g graph) []string {
	rest := maps.Clone(g)
	var front, back []string
	for len(rest) > 0 {
		name, last := next(rest)
		delete(rest, name)
		if last {
			back = append(back, name)
		} else {
			front = append(front, name)
		}
	}
	slices.Reverse(back)
	return append(front, back...)
}

// next chooses the box to place, and whether it goes to the back.
func next(rest graph) (string, bool) {
	best, lead := "", 0
	for _, name := range rest.names() {
		out, in := degrees(rest, name)
		switch {
		case out == 0:
			return name, true
		case in == 0:
			return name, false
		case best == "" || out-in > lead:
			best, lead = name, out-in
		}
	}
	return best, false
}

// degrees counts the arrows from and to a box, among the boxes that are left.
func degrees(rest graph, name string) (out, in int) {
	for other, to := range rest {
		if rest[name][other] {
			out++
		}
		if to[name] {
			in++
		}
	}
	return out, in
}

// levels is the length of the longest way along the arrows that run with the
// order, in boxes.
func levels(g graph, line []string) int {
	deep, most := map[string]int{}, 0
	for i, from := range line {
		deep[from]++
		most = max(most, deep[from])
		for _, to := range line[i+1:] {
			if g[from][to] {
				deep[to] = max(deep[to], deep[from])
			}
		}
	}
	return most
}

// against counts, for each box, the arrows from it that run against the order.
func against(g graph, line []string) map[string]int {
	figures := map[string]int{}
	for i, to := range line {
		for _, from := range line[i+1:] {
			if g[from][to] {
				figures[from]++
			}
		}
	}
	return figures
}

func arrowsBack(t tree) reading {
	g := drawing(t)
	line := order(g)
	figures, total := against(g, line), 0
	for _, n := range figures {
		total += n
	}
	return reading{total, append([]string{
		fmt.Sprintf("%d boxes %d levels %d arrows", len(g), levels(g, line), g.arrows()),
	}, places(ranked(figures))...)}
}
