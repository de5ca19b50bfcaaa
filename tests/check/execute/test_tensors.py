from instep.check.execute.tensors import Tensor, as_tensor, derive, inside, made_of, parameters_of
from instep.check.execute.things import Net, Param, Parameters
from instep.check.execute.values import DictValue, ListValue, Unknown
from tests.check.execute.run import SETUP, evaluated, executed


def test_what_is_inside_values_is_found():
    m, _ = executed("")
    tensor, net, unknown = m.tensor(None, None), Net("net"), Unknown("x")
    hinted = Unknown("y")
    hinted.hint = frozenset({Net("other")})
    tensors, nets, unknowns = made_of(
        [(tensor,), ListValue([net]), DictValue({"a": unknown}), hinted]
    )
    assert tensors == [tensor]
    assert {found.known_as for found in nets} == {"net", "other"}
    assert set(unknowns) == {unknown, hinted}


def test_a_list_that_holds_itself_comes_to_an_end():
    loop = ListValue([])
    loop.items.append(loop)
    assert made_of([loop]) == ([], {}, [])


def test_containers():
    assert list(inside((1, 2))) == [1, 2]
    assert list(inside(DictValue({"a": 3}))) == [3]
    assert list(inside("text")) == []


def test_a_function_of_a_model_alone_may_make_anything():
    m, scope = executed("")
    net = Net("net")
    made = derive(m, scope.module.tree, [net], scope)
    assert isinstance(made, Unknown)
    assert made.hint == {net}


def test_a_function_of_a_model_and_a_batch_makes_a_tensor():
    m, scope = executed("")
    made = derive(m, scope.module.tree, [Net("net"), Unknown("x", drawn=Net("loader"))], scope)
    assert isinstance(made, Tensor)


def test_a_tensor_of_unknown_models_makes_another():
    m, scope = executed("")
    known, unknown = m.tensor(frozenset(), None), m.tensor(None, None)
    assert derive(m, scope.module.tree, [known, unknown], scope).nets is None


def test_what_is_made_of_tensors_without_a_graph_has_none():
    assert not evaluated("helper(model(x).detach())", SETUP).graph
    assert evaluated("helper(model(x), model(x).detach())", SETUP).graph


def test_an_unknown_becomes_a_tensor_once():
    m, scope = executed("")
    value = Unknown("loss")
    made = as_tensor(m, value, scope.module.tree)
    assert as_tensor(m, value, scope.module.tree) is made
    assert made.known_as == "loss"
    assert as_tensor(m, 3, scope.module.tree) is None


def test_what_turns_out_to_be_a_loss_has_been_divided_all_along():
    _, scope = executed("v = total / 4\nv.backward()")
    assert scope.names["v"].made.parts == (0.25,)


def test_whose_parameters_a_value_holds():
    net, other = Net("net"), Net("other")
    both = frozenset({net, other})
    assert parameters_of(Parameters(both)) == both
    assert parameters_of((net, Param(frozenset({other})))) == both
    assert parameters_of(ListValue([DictValue({"params": net}), other])) == both
    assert parameters_of(ListValue([net, Unknown("x")])) is None
    assert parameters_of(ListValue([], exact=False)) is None
    assert parameters_of(()) == frozenset()
    assert parameters_of(3) is None


def test_a_parameter_is_a_tensor_of_its_own():
    made = evaluated("w * 2", "import torch\nw = torch.nn.Parameter(x)")
    assert isinstance(made, Tensor)
    assert {net.known_as for net in made.nets} == {"w"}


def test_outputs_come_from_their_models():
    made = evaluated("model(model(x)) + 1", SETUP)
    assert {net.known_as for net in made.nets} == {"model"}
