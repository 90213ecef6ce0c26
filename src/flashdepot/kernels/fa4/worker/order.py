"""In which order blocks take tiles of unequal work: plain arithmetic, on CuTe's integers or on Python's."""


def tile_of(number, first, blocks, rows, heads, choose):
    """The tile that a block takes as its ``number``-th, from 0: its head, its row of tiles, and whether there is one.

    A block takes the last tile of a head with the first, the last but one with the second. Of a causal mask all such
    pairs are equal, so blocks that take as many of them have the same work; with windows nearly, and the pairs that a block
    takes one after the other lie elsewhere in their heads. Pairs of a head run at the same time, while its keys are near.
    Pairs that are fewer than blocks, and the middle tiles of heads with an odd number, are taken one by one, the last of
    each head first, from the first block to the last and back.

    first: the block. blocks: how many there are. rows: tiles of a head. choose(condition, this, that): this or that.
    """
    pairs = rows // 2
    rounds = heads * pairs // blocks
    left = heads * pairs - rounds * blocks
    middles = heads * (rows % 2)

    nth = number // 2
    turn = number - 2 * rounds
    single = turn * blocks + first + turn % 2 * (blocks - 1 - 2 * first)
    is_middle = choose(turn < 0, 0, choose(single < left, 0, choose(single < left + middles, 1, 0)))
    is_late = choose(turn < 0, 1 - number % 2, choose(single < left, 1, 0))
    alone = rounds * blocks + choose(single < left, single, 2 * left + middles - 1 - single)
    pair = choose(turn < 0, nth * blocks + (first + nth) % blocks, alone)

    divisor = choose(pairs > 0, pairs, 1)
    early = pair % divisor
    row = choose(is_middle == 1, pairs, choose(is_late == 1, rows - 1 - early, early))
    head = choose(is_middle == 1, single - left, pair // divisor)
    return head, row, choose(turn < 0, 1, choose(single < 2 * left + middles, 1, 0)) == 1


def in_turns(tiles, blocks, rounds, larger):
    """How many tiles of falling work so many blocks take in turns, of so many tiles: all but the last so many rounds.

    Each other tile is a block's by itself, which the GPU starts when one before it has ended: they fill what unequal work of
    the others leaves. Such a block takes longer, so that they are few. larger(this, that): the larger one.
    """
    return larger(tiles // blocks - rounds, 1) * blocks


def share_of(block, blocks, shared, choose):
    """The first tile of a block, and what its last is below; between two lie as many as there are blocks that take turns.

    blocks: those. shared: their tiles. choose(condition, this, that): this or that.
    """
    alone = shared + block - blocks
    return choose(block < blocks, block, alone), choose(block < blocks, shared, alone + 1)


def by_turns(number, tiles, heads, most, choose):
    """The head of a block that has one tile, and which of its head's that is: the first of each head, the second of each, ..

    number: of the block, from 0. tiles: of a head. most: heads that take turns. choose(condition, this, that): this or that.
    """
    rounds = (heads + most - 1) // most
    at_once = (heads + rounds - 1) // rounds
    first = number // (tiles * at_once) * at_once
    left = number - first * tiles
    here = choose(heads - first < at_once, heads - first, at_once)
    return first + left % here, left // here
