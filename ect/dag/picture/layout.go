package picture

import (
	"cmp"
	"fmt"
	"slices"
)

// Bounds of a picture. What is beyond them is counted and not drawn.
const (
	MaxBoxes  = 500
	MaxArrows = 2000
	sweeps    = 4 // down and up again
	widest    = 6 // boxes in a row
)

// Tone is the colour of a box.
type Tone int

// The tones. The zero value is plain.
const (
	Plain Tone = iota
	Waiting
	Active
	Good
	Warning
	Bad
)

// Box is one box, with any text. At most maxLines lines are drawn.
type Box struct {
	Lines []string // the first is bold
	Title string   // shown when the pointer is on the box
	Tone  Tone
}

// Arrow leads from one box to another, by their places in the list of boxes. One whose ends are not two
// boxes of the list is left out.
type Arrow struct{ From, To int }

// Picture is boxes with their places and the arrows between them. It is immutable.
type Picture struct {
	boxes  []Box
	arrows []Arrow
	at     []place // of each box
	rows   int
}

// place is where a box stands: its row, its column, and how many boxes are in its row.
type place struct{ row, column, of int }

// Layout places boxes. The first MaxBoxes boxes and the first MaxArrows arrows between them are drawn.
func Layout(boxes []Box, arrows []Arrow) Picture {
	p := Picture{boxes: slices.Clone(boxes[:min(len(boxes), MaxBoxes)])}
	drawn := len(p.boxes)
	for _, a := range arrows {
		if a.From != a.To && min(a.From, a.To) >= 0 && max(a.From, a.To) < drawn {
			p.arrows = append(p.arrows, a)
		}
	}
	rest := remainder(len(boxes)-drawn, len(p.arrows)-MaxArrows)
	p.arrows = p.arrows[:min(len(p.arrows), MaxArrows)]
	layers := ordered(layered(drawn, p.arrows), p.arrows)
	if rest != nil {
		layers = append(layers, []int{drawn})
		p.boxes = append(p.boxes, Box{Lines: rest})
	}
	p.at = make([]place, len(p.boxes))
	for _, layer := range layers {
		for row := range slices.Chunk(layer, widest) {
			for column, box := range row {
				p.at[box] = place{p.rows, column, len(row)}
			}
			p.rows++
		}
	}
	return p
}

// remainder says what is not drawn; nil: all is.
func remainder(boxes, arrows int) (lines []string) {
	if boxes > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", boxes))
	}
	if arrows > 0 {
		lines = append(lines, fmt.Sprintf("and %d more arrows", arrows))
	}
	return lines
}

// layered puts each box into the layer below the lowest of those that lead to it. Where each of those that are
// left waits for another, the first of them goes ahead: they are on a cycle, or below one.
func layered(boxes int, arrows []Arrow) (layers [][]int) {
	next, waits, depth := make([][]int, boxes), make([]int, boxes), make([]int, boxes)
	for _, a := range arrows {
		next[a.From] = append(next[a.From], a.To)
		waits[a.To]++
	}
	for range boxes {
		box := slices.Index(waits, 0)
		if box < 0 {
			box = slices.IndexFunc(waits, func(n int) bool { return n > 0 })
		}
		waits[box] = -1 // it is placed
		for len(layers) <= depth[box] {
			layers = append(layers, nil)
		}
		layers[depth[box]] = append(layers[depth[box]], box)
		for _, to := range next[box] {
			depth[to] = max(depth[to], depth[box]+1)
			waits[to]-- // of one that is placed it stays below 0
		}
	}
	for _, layer := range layers {
		slices.Sort(layer)
	}
	return layers
}

// ordered moves the boxes of each layer to the middle of those above them, and then of those below them, a few
// times. What moves to one place keeps its order.
func ordered(layers [][]int, arrows []Arrow) [][]int {
	const unit = 1000 // of a column
	above, below, column := map[int][]int{}, map[int][]int{}, map[int]int{}
	for _, a := range arrows {
		below[a.From] = append(below[a.From], a.To)
		above[a.To] = append(above[a.To], a.From)
	}
	spread := func(layer []int) {
		for i, box := range layer {
			column[box] = (2*i - len(layer) + 1) * unit / 2
		}
	}
	arrange := func(layer []int, neighbours map[int][]int) {
		wanted := map[int]int{}
		for _, box := range layer {
			wanted[box] = column[box]
			if list := neighbours[box]; len(list) > 0 {
				sum := 0
				for _, other := range list {
					sum += column[other]
				}
				wanted[box] = sum / len(list)
			}
		}
		slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(wanted[a], wanted[b]) })
		spread(layer)
	}
	for _, layer := range layers {
		spread(layer)
	}
	for range sweeps {
		for _, layer := range layers {
			arrange(layer, above)
		}
		for _, layer := range slices.Backward(layers) {
			arrange(layer, below)
		}
	}
	return layers
}
